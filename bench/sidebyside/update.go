package main

import (
	"fmt"
	"time"

	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/rival"
)

// largeUpdate is P14: transactions of many operations.
func largeUpdate(b *bench) error {
	keys := keysOf(10 * chunk)
	memory, err := openOurs("", nil, keys)
	if err != nil {
		return err
	}
	defer memory.Close()
	db, err := openOurs(b.file("lockd.db"), nil, keys)
	if err != nil {
		return err
	}
	defer db.Close()
	bolt, err := rival.OpenBolt(b.file("bolt.db"), keys)
	if err != nil {
		return err
	}
	defer bolt.Close()
	b.setting(rival.BoltSettings())

	// One value more than keys: each turn through the keys gives each key another value.
	values := make([][]byte, len(keys)+1)
	for i := range values {
		values[i] = fmt.Appendf(nil, "%08d", i)
	}
	n := 0
	value := func() []byte { n++; return values[n%len(values)] }
	figures, err := b.inTurn(
		b.loop("single writes", keys, func(key string) error {
			_, err := memory.Put(key, value(), nil)
			return err
		}),
		updates("Update in memory", &b.inRAM, keys, func(some []string) error {
			return memory.fill(some, value())
		}),
		updates("Update on disk", &b.onDisk, keys, func(some []string) error {
			return db.fill(some, value())
		}),
		updates("bbolt", &b.onDisk, keys, bolt.Write))
	if err != nil {
		return err
	}
	b.add(slower("P14", "an operation of an Update with 1,000, in memory", measure.AtMost(0.5),
		figures[1].Wall, "lockd, a single Put", figures[0].Wall))
	b.add(slower("P14", "an operation of a durable Update with 1,000", measure.AtMost(1.5),
		figures[2].Wall, "bbolt, one Update", figures[3].Wall))
	return nil
}

// updates is a trial of transactions that write a thousand keys each.
func updates(
	name string, window *time.Duration, keys []string, write func(keys []string) error,
) measure.Trial {
	return chunks(name, window, keys, chunk, write)
}
