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

func TestReports(t *testing.T) {
	lockdtest.Explore(t, nil, func(w *lockdtest.World) {
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
							report := []byte(strconv.Itoa(number))
							_, err := w.DB().If(proof).Put("report", report, nil)
							return err
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
	})
}
