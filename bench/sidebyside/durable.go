package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/report"
	"github.com/lockd/lockd/bench/internal/rival"
)

// ownKeys is how many keys each goroutine of a crowd has for itself.
const ownKeys = 16

// durableAlone is P3.
func durableAlone(b *bench) error {
	keys := keysOf(1024)
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
	bunt, err := rival.OpenBunt(b.file("bunt.db"), keys)
	if err != nil {
		return err
	}
	defer bunt.Close()
	b.setting(rival.BoltSettings())
	b.setting(rival.BuntSettings())

	defer b.roundsOnDisk(b.onDisk / diskSlices)()
	perWrite := counter{warmup: diskSlices * b.rounds.Warmup}
	figures, err := b.inSlices(diskSlices,
		db.counting(&perWrite, b.crowd("lockd", 1, keys, db.pairOf)),
		b.crowd("bbolt", 1, keys, func(_ int, key string) error { return bolt.Pair(key) }),
		b.crowd("buntdb", 1, keys, func(_ int, key string) error { return bunt.Pair(key) }))
	if err != nil {
		return err
	}
	const what = "durable pair, 1 goroutine, 1,024 keys"
	b.add(slower("P3", what, measure.AtMost(1.1), figures[0].Wall,
		"bbolt, two Updates", figures[1].Wall))
	b.add(report.Row{Target: "P3", What: "commits per write", Unit: report.Count,
		Figure: perWrite.commitsPerWrite(), Bound: measure.AtMost(1)})
	b.add(slower("P3", what, measure.Bound{}, figures[0].Wall,
		"buntdb, two Updates", figures[2].Wall))
	return nil
}

// durableCrowd is P4.
func durableCrowd(b *bench) error {
	const workers = 64
	keys := keysOf(workers * ownKeys)
	etcdFolder := b.file("etcd")
	etcd, err := rival.OpenEtcd(etcdFolder)
	if err != nil {
		return err
	}
	b.setting(rival.EtcdSettings())
	others := []contender{{b.crowd("etcd, concurrency.Mutex", workers, keys,
		func(_ int, key string) error { return etcd.Pair(key) }), measure.AtLeast(8)}}
	if b.extras() {
		others = append(others, contender{Trial: b.crowd("etcd, the same by gRPC", workers, keys,
			func(_ int, key string) error { return etcd.RemotePair(key) })})
	}
	err = durablePairs(b, crowdPlan{
		target: "P4", workers: workers, keys: keys, others: others,
		batch: 3, redis: 1.5, perCommit: 54,
	})
	return errors.Join(err, etcd.Close())
}

// durableLargeCrowd is P5.
func durableLargeCrowd(b *bench) error {
	const workers = 512
	defer b.roundsOnDisk(b.onDisk * 3 / 2)() // a round begins and ends with smaller commits
	return durablePairs(b, crowdPlan{
		target: "P5", workers: workers, keys: keysOf(workers * ownKeys),
		batch: 1.3, redis: 3, perCommit: 430,
	})
}

// crowdPlan says what is asked of a crowd.
type crowdPlan struct {
	target  string
	workers int
	keys    []string

	batch, redis, perCommit float64 // at least

	others []contender // more rivals
}

// contender is a rival, and how many times as fast lockd has to be.
type contender struct {
	measure.Trial
	asked measure.Bound
}

// durablePairs measures a crowd beside its rivals.
func durablePairs(b *bench, plan crowdPlan) error {
	db, err := openOurs(b.file("lockd.db"), nil, plan.keys)
	if err != nil {
		return err
	}
	defer db.Close()
	bolt, err := rival.OpenBolt(b.file("bolt.db"), plan.keys)
	if err != nil {
		return err
	}
	defer bolt.Close()
	b.setting(rival.BoltSettings())
	contenders, err := b.batches(bolt, plan)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("durable pairs, %d goroutines, %d keys each: times as fast",
		plan.workers, ownKeys)
	fast := contender{asked: measure.AtLeast(plan.redis)}
	switch redis, err := rival.OpenRedis(b.folder, plan.workers); {
	case err == nil:
		defer redis.Close()
		b.setting(redis.Settings())
		fast.Trial = b.crowd(redisPair, plan.workers, plan.keys, redis.Pair)
		contenders = append(contenders, fast)
	case errors.Is(err, rival.ErrNoRedis):
		b.add(report.Row{Target: plan.target, What: what, Bound: fast.asked, Rival: redisPair,
			Missing: err.Error()})
	default:
		return err
	}
	contenders = append(contenders, plan.others...)

	perWrite := counter{warmup: b.rounds.Warmup}
	trials := []measure.Trial{
		db.counting(&perWrite, b.crowd("lockd", plan.workers, plan.keys, db.pairOf)),
		b.together(bolt, plan.workers, plan.keys),
	}
	for _, rival := range contenders {
		trials = append(trials, rival.Trial)
	}
	figures, err := b.inTurn(trials...)
	if err != nil {
		return err
	}
	for i, rival := range contenders {
		b.add(faster(plan.target, what, rival.asked, figures[0].Wall, rival.Name,
			figures[i+2].Wall))
	}
	b.add(slower(plan.target, "the same, beside the limit of a group commit into bbolt",
		measure.Bound{}, figures[0].Wall, trials[1].Name, figures[1].Wall))
	b.add(report.Row{Target: plan.target, What: "writes per commit", Unit: report.Count,
		Figure: perWrite.writesPerCommit(), Bound: measure.AtLeast(plan.perCommit)})
	return nil
}

const redisPair = "Redis, SET NX + DEL"

// batches returns bbolt's Batch with its default size, and with a size of as many goroutines as
// there are.
func (b *bench) batches(bolt *rival.Bolt, plan crowdPlan) ([]contender, error) {
	best, err := b.sweep(bolt, rival.DefaultBatchSize, plan.workers, plan.keys)
	if err != nil {
		return nil, err
	}
	contenders := []contender{{best, measure.AtLeast(plan.batch)}}
	if !b.extras() {
		return contenders, nil
	}
	told, err := b.sweep(bolt, plan.workers, plan.workers, plan.keys)
	return append(contenders, contender{Trial: told}), err
}

// together is a trial of one goroutine that writes in one Update what all the workers of a crowd
// write: no group commit into bbolt can be faster. Two Updates are a pair of each worker.
func (b *bench) together(bolt *rival.Bolt, workers int, keys []string) measure.Trial {
	own := len(keys) / workers
	rows := make([]string, workers)
	return measure.Trial{Name: "bbolt, all in one Update", Run: func() (measure.Cost, error) {
		cost, err := measure.Crowd(b.onDisk, 1, func(_, i int) error {
			for worker := range rows {
				rows[worker] = keys[worker*own+i%own]
			}
			slices.Sort(rows)
			return bolt.Write(rows)
		})
		cost.Operations = cost.Operations * workers / 2
		return cost, err
	}}
}

// sweep tries several delays for which bbolt's Batch waits for others, for at most size of them,
// and returns the trial with the best delay.
func (b *bench) sweep(
	bolt *rival.Bolt, size, workers int, keys []string,
) (measure.Trial, error) {
	delays := []time.Duration{
		100 * time.Microsecond, 300 * time.Microsecond, time.Millisecond,
		3 * time.Millisecond, 10 * time.Millisecond,
	}
	trial := b.crowd("", workers, keys, func(_ int, key string) error {
		return bolt.BatchPair(key)
	})
	defer b.roundsOnDisk(b.onDisk / 2)()
	best, fastest := time.Duration(0), 0.0
	var found []string
	for _, delay := range delays {
		bolt.SetBatch(delay, size)
		cost, err := trial.Run()
		if err != nil {
			return measure.Trial{}, err
		}
		rate := float64(cost.Operations) / cost.Wall.Seconds()
		found = append(found, fmt.Sprintf("%v: %.0f/s", delay, rate))
		if rate > fastest {
			best, fastest = delay, rate
		}
	}
	b.note("bbolt Batch, MaxBatchSize %d, %d goroutines, pairs by MaxBatchDelay: %s", size, workers,
		strings.Join(found, ", "))
	name := fmt.Sprintf("bbolt Batch, MaxBatchDelay %v", best)
	if size != rival.DefaultBatchSize {
		name += fmt.Sprintf(", MaxBatchSize %d", size)
	}
	return measure.Trial{Name: name, Run: func() (measure.Cost, error) {
		bolt.SetBatch(best, size)
		return trial.Run()
	}}, nil
}

// counter counts the commits and the writes of each round.
type counter struct {
	commits, writes measure.Series
	warmup          int // rounds, or slices of rounds, that do not count
}

func (c *counter) commitsPerWrite() measure.Series {
	return c.commits.Over(c.writes)[c.warmup:]
}

func (c *counter) writesPerCommit() measure.Series {
	return c.writes.Over(c.commits)[c.warmup:]
}

// counting is the trial, whose operations are pairs, with its commits counted.
func (o *ours) counting(c *counter, trial measure.Trial) measure.Trial {
	return measure.Trial{Name: trial.Name, Run: func() (measure.Cost, error) {
		before := o.commits()
		cost, err := trial.Run()
		if err != nil {
			return measure.Cost{}, err
		}
		commits := o.commits() - before
		if commits == 0 {
			return measure.Cost{}, errors.New("nothing was committed")
		}
		c.commits = append(c.commits, float64(commits))
		c.writes = append(c.writes, float64(2*cost.Operations))
		return cost, err
	}}
}

// fileSize is the size of the file in bytes.
func fileSize(path string) (float64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return float64(info.Size()), nil
}
