package lockdtest_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

// A late report is refused. With db.Put in place of db.If(proof).Put the test fails.
func TestReports(t *testing.T) {
	opts := &lockdtest.ExploreOptions{Schedules: 10_000}
	lockdtest.Explore(t, opts, reports(
		func(db *lockd.DB, proof lockd.Sequencer, report []byte) error {
			_, err := db.If(proof).Put("report", report, nil)
			return err
		}))
}

// reports returns a body in which two sessions write reports, each under the lock, by the given
// function.
func reports(
	write func(db *lockd.DB, proof lockd.Sequencer, report []byte) error,
) func(w *lockdtest.World) {
	return func(w *lockdtest.World) {
		ctx, number := context.Background(), 0
		for _, name := range []string{"ann", "bob"} {
			w.Go(name, func() {
				options := &lockd.SessionOptions{Name: name, TTL: 10 * time.Second}
				keeper, _ := w.DB().NewKeeper(options)
				session, err := keeper.Session(ctx)
				if err == nil {
					_ = session.WithLock(ctx, "report", nil,
						func(_ context.Context, proof lockd.Sequencer) error {
							number++
							return write(w.DB(), proof, []byte(strconv.Itoa(number)))
						})
				}
				for err := keeper.Close(); errors.Is(err, lockd.ErrCommit); {
					err = keeper.Close()
				}
			})
		}
		newest := 0
		w.Invariant("reports get newer", func() error {
			report, _ := w.DB().Get("report")
			n, _ := strconv.Atoi(string(report.Value))
			if n < newest {
				return fmt.Errorf("report %d comes after report %d", n, newest)
			}
			newest = n
			return nil
		})
	}
}
