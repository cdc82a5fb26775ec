package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/report"
)

// bench is one run: how much is measured, where, and what was found.
type bench struct {
	folder string // for files, removed at the end
	report *report.Report
	effort effort

	rounds measure.Rounds
	inRAM  time.Duration // how long a round in memory lasts
	onDisk time.Duration
}

// effort is how much of everything is measured.
type effort uint8

const (
	full effort = iota
	quick
	tiny // to see that it works; the figures mean nothing
)

// newBench makes a folder of its own in the parent, or among the temporary files.
func newBench(how effort, parent string) (*bench, error) {
	folder, err := os.MkdirTemp(parent, "lockd-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{folder: folder, effort: how}
	switch how {
	case full:
		b.rounds = measure.Rounds{Warmup: 1, Counted: 9}
		b.inRAM, b.onDisk = 300*time.Millisecond, time.Second
	case quick:
		b.rounds = measure.Rounds{Warmup: 1, Counted: 5}
		b.inRAM, b.onDisk = 20*time.Millisecond, 60*time.Millisecond
	case tiny:
		b.rounds = measure.Rounds{Counted: 1}
		b.inRAM, b.onDisk = time.Millisecond, 10*time.Millisecond
	}
	b.report = &report.Report{Machine: machine(folder)}
	b.setting(oursSettings())
	b.note("%d rounds in turn, after %d that is shorter and does not count; %v each in memory, "+
		"%v on disk", b.rounds.Counted, b.rounds.Warmup, b.inRAM, b.onDisk)
	return b, nil
}

// measure runs a group, and removes its files.
func (b *bench) measure(g group) error {
	err := g.run(b)
	entries, _ := os.ReadDir(b.folder)
	for _, entry := range entries {
		os.RemoveAll(filepath.Join(b.folder, entry.Name()))
	}
	return err
}

// roundsOnDisk makes rounds on disk last for window, until back is called.
func (b *bench) roundsOnDisk(window time.Duration) (back func()) {
	before := b.onDisk
	b.onDisk = window
	return func() { b.onDisk = before }
}

// size returns how many of something to measure with: all, some in a quick run, or a chunk.
func (b *bench) size(all, some int) int {
	switch b.effort {
	case quick:
		return some
	case tiny:
		return chunk
	}
	return all
}

// extras reports whether there is time for rows that a quick run does without.
func (b *bench) extras() bool { return b.effort != quick }

// file is the path of a new file, or of a folder to be made, in the bench's folder.
func (b *bench) file(name string) string { return filepath.Join(b.folder, name) }

func (b *bench) add(row report.Row) { b.report.Rows = append(b.report.Rows, row) }

func (b *bench) note(format string, args ...any) {
	b.report.Notes = append(b.report.Notes, fmt.Sprintf(format, args...))
}

// setting says, once, how a rival is set.
func (b *bench) setting(text string) {
	if !slices.Contains(b.report.Settings, text) {
		b.report.Settings = append(b.report.Settings, text)
	}
}

// warmupPart is how many times shorter a round is that does not count.
const warmupPart = 4

// inTurn runs the trials round by round, after shorter rounds that do not count.
func (b *bench) inTurn(trials ...measure.Trial) ([]measure.Figures, error) {
	return b.inSlices(1, trials...)
}

// diskSlices is how often trials take turns in a round on disk that is cut into slices. A disk has
// slow moments of some tenths of a second, which should hit all trials alike.
const diskSlices = 3

// inSlices is inTurn, but the trials take turns that many times in a round.
func (b *bench) inSlices(slices int, trials ...measure.Trial) ([]measure.Figures, error) {
	inRAM, onDisk := b.inRAM, b.onDisk
	b.inRAM, b.onDisk = inRAM/warmupPart, onDisk/warmupPart
	rounds := b.rounds
	rounds.Slices = slices
	rounds.Count = func() { b.inRAM, b.onDisk = inRAM, onDisk }
	return measure.InTurn(rounds, trials...)
}

// chunk is how many operations in memory pass between two looks at the time.
const chunk = 1000

// loop is a trial of one goroutine that does op with one key after the other. The number of keys is
// a multiple of chunk.
func (b *bench) loop(name string, keys []string, op func(key string) error) measure.Trial {
	return chunks(name, &b.inRAM, keys, chunk, func(some []string) error {
		for _, key := range some {
			if err := op(key); err != nil {
				return err
			}
		}
		return nil
	})
}

// chunks is a trial of one goroutine that does op with size keys at a time. Each round goes on
// where the last one stopped: a round may have time for only a small part of the keys. The number
// of keys is a multiple of size.
func chunks(
	name string, window *time.Duration, keys []string, size int, op func(some []string) error,
) measure.Trial {
	begun := 0
	return measure.Trial{Name: name, Run: func() (measure.Cost, error) {
		cost, err := measure.Loop(*window, size, func(first, count int) error {
			first = (begun + first) % len(keys)
			return op(keys[first : first+count])
		})
		begun += cost.Operations
		return cost, err
	}}
}

// repeat is a trial of one goroutine that does op again and again in memory, with a number that
// counts up from one round to the next.
func (b *bench) repeat(name string, op func(i int) error) measure.Trial {
	begun := 0
	return measure.Trial{Name: name, Run: func() (measure.Cost, error) {
		cost, err := measure.Loop(b.inRAM, chunk, func(first, count int) error {
			for i := range count {
				if err := op(begun + first + i); err != nil {
					return err
				}
			}
			return nil
		})
		begun += cost.Operations
		return cost, err
	}}
}

// crowd is a trial of many goroutines on disk, each of which does op with keys of its own.
func (b *bench) crowd(
	name string, workers int, keys []string, op func(worker int, key string) error,
) measure.Trial {
	return crowd(name, &b.onDisk, workers, keys, op)
}

// crowdInRAM is crowd with what has no file.
func (b *bench) crowdInRAM(
	name string, workers int, keys []string, op func(worker int, key string) error,
) measure.Trial {
	return crowd(name, &b.inRAM, workers, keys, op)
}

func crowd(
	name string, window *time.Duration, workers int, keys []string,
	op func(worker int, key string) error,
) measure.Trial {
	own := len(keys) / workers
	begun := 0 // each worker goes on about where it stopped: see chunks
	return measure.Trial{Name: name, Run: func() (measure.Cost, error) {
		cost, err := measure.Crowd(*window, workers, func(worker, i int) error {
			return op(worker, keys[worker*own+(begun+i)%own])
		})
		begun += cost.Operations / workers
		return cost, err
	}}
}

// keysOf returns count keys, in an order that is random and the same in each run.
func keysOf(count int) []string {
	keys := orderedKeys(count)
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(count, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// orderedKeys returns the keys of keysOf in their order.
func orderedKeys(count int) []string {
	keys := make([]string, count)
	for i := range keys {
		keys[i] = fmt.Sprintf("locks-%08d", i)
	}
	return keys
}

// slower returns a row that says how many times as long lockd takes as the rival.
func slower(
	target, what string, bound measure.Bound, ours measure.Series, rival string,
	theirs measure.Series,
) report.Row {
	return report.Row{Target: target, What: what, Bound: bound, Figure: ours.Over(theirs),
		Ours: ours, Theirs: theirs, Rival: rival}
}

// faster returns a row that says how many times as fast lockd is as the rival.
func faster(
	target, what string, bound measure.Bound, ours measure.Series, rival string,
	theirs measure.Series,
) report.Row {
	if !bound.Asked() {
		bound = measure.Large()
	}
	row := slower(target, what, bound, ours, rival, theirs)
	row.Figure = theirs.Over(ours)
	return row
}

// count writes a number as people do.
func count(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
