package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"runtime"

	"go.etcd.io/bbolt"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/report"
	"github.com/lockd/lockd/bench/internal/rival"
)

// openLarge is P9.
func openLarge(b *bench) error {
	path := b.file("lockd.db")
	keys := orderedKeys(b.size(1_000_000, 100_000))
	total := len(keys)
	value := []byte("0123456789")
	beyond := float64(len(keys[0]) + len(value))
	if err := makeFile(path, keys, value); err != nil {
		return err
	}
	keys = nil

	b.setting(boltLikeOursSettings())
	var memory measure.Series
	rows := 0
	figures, err := b.inTurn(
		measure.Trial{Name: "lockd", Run: func() (measure.Cost, error) {
			heap := liveHeap()
			watch := measure.Start()
			db, err := lockd.Open(path, nil)
			if err != nil {
				return measure.Cost{}, err
			}
			cost := watch.Stop(1)
			memory = append(memory, (liveHeap()-heap)/float64(total)-beyond)
			return cost, db.Close()
		}},
		measure.Trial{Name: "bbolt", Run: func() (cost measure.Cost, err error) {
			rows, cost, err = readRows(path)
			return cost, err
		}})
	if err != nil {
		return err
	}
	if rows < total {
		return fmt.Errorf("the cursor saw %d rows, and there are %d keys", rows, total)
	}
	b.add(slower("P9", "Open with "+count(total)+" keys", measure.AtMost(3),
		figures[0].Wall, "bbolt cursor with checksums", figures[1].Wall))
	b.add(report.Row{Target: "P9", What: "memory for a key, beyond key and value",
		Unit: report.Bytes, Figure: memory[b.rounds.Warmup:], Bound: measure.AtMost(250)})
	if !b.extras() {
		return nil
	}
	written, err := writtenMemory(path, total)
	if err != nil {
		return err
	}
	b.add(report.Row{Target: "P9", What: "the same, when each was written once, at random",
		Unit: report.Bytes, Figure: measure.Series{written - beyond}})
	return nil
}

// writtenMemory returns the memory for a key and its value in a file that was opened, after every
// key has been written again.
func writtenMemory(path string, total int) (each float64, err error) {
	keys := keysOf(total)
	heap := liveHeap()
	db, err := lockd.Open(path, &lockd.Options{Sync: lockd.SyncNever})
	if err != nil {
		return 0, err
	}
	o := ours{DB: db}
	err = o.fill(keys, []byte("9876543210"))
	each = (liveHeap() - heap) / float64(total)
	runtime.KeepAlive(keys)
	return each, errors.Join(err, db.Close())
}

// makeFile makes a file of lockd's that has the keys.
func makeFile(path string, keys []string, value []byte) error {
	db, err := lockd.Open(path, nil)
	if err != nil {
		return err
	}
	o := ours{DB: db}
	return errors.Join(o.fill(keys, value), db.Close())
}

// readRows reads all rows of a lockd file with bbolt cursors and verifies their checksums, as every
// Open has to. It returns how many rows there are, and what that cost without closing the file.
func readRows(path string) (rows int, cost measure.Cost, err error) {
	watch := measure.Start()
	db, err := bbolt.Open(path, 0o600, boltLikeOurs())
	if err != nil {
		return 0, cost, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tables := []string{"keys", "sessions", "nodes", "services", "checks", "attachments", "delays",
		"graves", "marks"}
	err = db.View(func(tx *bbolt.Tx) error {
		for number, table := range tables {
			bucket := tx.Bucket([]byte(table))
			if bucket == nil {
				return fmt.Errorf("there is no table of %s", table)
			}
			cursor := bucket.Cursor()
			for key, row := cursor.First(); key != nil; key, row = cursor.Next() {
				if !sound(byte(number), key, row) {
					return fmt.Errorf("row %q of %s is damaged", key, table)
				}
				rows++
			}
		}
		return nil
	})
	return rows, watch.Stop(1), err
}

// boltLikeOurs returns the options with which lockd opens its file.
func boltLikeOurs() *bbolt.Options {
	return &bbolt.Options{FreelistType: bbolt.FreelistMapType, NoStatistics: true}
}

func boltLikeOursSettings() string {
	return "bbolt beside Open: " + rival.Version("go.etcd.io/bbolt") + ", as lockd opens its " +
		"file: free list as a map and in the file, no statistics"
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sound reports whether the row has the checksum that ends it.
func sound(table byte, key, row []byte) bool {
	end := len(row) - crc32.Size
	if end < 0 {
		return false
	}
	sum := crc32.Update(uint32(table)<<24^uint32(len(key)), castagnoli, key)
	sum = crc32.Update(sum, castagnoli, row[:end])
	return binary.BigEndian.Uint32(row[end:]) == sum
}

// smallFile is how many keys a small file has.
const smallFile = 10

// openSmall is P13.
func openSmall(b *bench) error {
	path := b.file("lockd.db")
	if err := makeFile(path, orderedKeys(smallFile), nil); err != nil {
		return err
	}
	before, err := state(path)
	if err != nil {
		return err
	}
	b.setting(boltLikeOursSettings())
	figures, err := b.inTurn(
		b.some("New", func() error {
			db, err := lockd.New(nil)
			if err != nil {
				return err
			}
			return db.Close()
		}),
		b.some("lockd", func() error {
			db, err := lockd.Open(path, nil)
			if err != nil {
				return err
			}
			return db.Close()
		}),
		b.some("bbolt", func() error {
			db, err := bbolt.Open(path, 0o600, boltLikeOurs())
			if err != nil {
				return err
			}
			return db.Close()
		}))
	if err != nil {
		return err
	}
	after, err := state(path)
	if err != nil {
		return err
	}
	b.add(report.Row{Target: "P13", What: "New + Close", Unit: report.Nanoseconds,
		Figure: figures[0].Wall, Bound: measure.AtMost(50_000)})
	b.add(slower("P13", fmt.Sprintf("Open + Close of a file with %d keys", smallFile),
		measure.AtMost(3), figures[1].Wall, "bbolt, Open + Close", figures[2].Wall))
	written := 0.0
	if !bytes.Equal(before, after) {
		written = 1
	}
	b.add(report.Row{Target: "P13", What: "files written to by Open + Close",
		Unit: report.Count, Figure: measure.Series{written}, Bound: measure.AtMost(0)})
	return nil
}

// some is a trial that does op a few times at a time.
func (b *bench) some(name string, op func() error) measure.Trial {
	return measure.Trial{Name: name, Run: func() (measure.Cost, error) {
		return measure.Loop(b.inRAM, 1, func(int, int) error { return op() })
	}}
}

// state is what the file holds and when it was last written to.
func state(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return info.ModTime().AppendFormat(content, "150405.000000000"), nil
}
