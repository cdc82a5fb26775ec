package lockd_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing/synctest"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// twinKeeper is a keeper and what the model knows of it. The zero value is no keeper.
type twinKeeper struct {
	real    *lockd.Keeper
	opts    *lockd.SessionOptions
	session twinSession // the newest that was made, and is durable
	closing bool        // Close was called
	hadOne  bool        // the creation of a session has become durable
}

// live reports whether the keeper's session lives.
func (k *twinKeeper) live() bool {
	return k.session.model != nil && k.session.model.cause == nil
}

// infoOf is what a session made with the options shows.
func infoOf(opts *lockd.SessionOptions) lockd.SessionInfo {
	info := lockd.SessionInfo{
		Name: opts.Name, Node: cmp.Or(opts.Node, ownNode), TTL: opts.TTL, Grace: opts.Grace,
		LockDelay: cmp.Or(opts.LockDelay, lockd.DefaultLockDelay), Behavior: opts.Behavior,
		Lifetime: opts.Lifetime, Checks: opts.Checks,
	}
	info.LockDelay = max(info.LockDelay, 0)
	return info
}

// doKeep asks the keeper for its session, and makes the keeper first if there is none. A call that
// would have to wait gives up.
func (w *twin) doKeep(o op) error {
	k := &w.keeper
	if k.real == nil {
		opts := w.sessionOptions(o)
		real, err := w.db.NewKeeper(opts)
		if opts.Lifetime == lockd.Independent && opts.TTL == 0 {
			return sameError(err, lockd.ErrInvalid)
		} else if err != nil {
			return err
		}
		k.opts, k.real = opts, real
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var real *lockd.Session
	asks := start(func() (err error) {
		real, err = k.real.Session(ctx)
		return err
	})
	synctest.Wait()
	cancel()
	err := asks.wait()
	synctest.Wait()
	switch {
	case k.closing:
		return sameError(err, lockd.ErrClosed)
	case k.live():
		if real != k.session.real {
			return fmt.Errorf("keeper: got another session, %w, while one lives", err)
		}
		return nil
	}
	info := infoOf(k.opts)
	if real != nil {
		info.ID = real.ID()
	}
	var s *modelSession
	failed := w.m.write(func(tx *modelTx) (err error) {
		if s, err = tx.newSession(info); err == nil {
			s.kept = true
		}
		return err
	})
	switch gone := errors.Is(failed, catalog.ErrNoNode) || errors.Is(failed, catalog.ErrNoCheck); {
	case failed == nil:
	case gone && !k.hadOne:
		return sameError(err, failed)
	default: // it may pass
		return sameError(err, context.Canceled)
	}
	if err != nil {
		return fmt.Errorf("keeper: got %w", err)
	}
	k.session, k.hadOne = twinSession{real, s}, true
	w.know(real, s)
	return nil
}

// doKeepClose closes the keeper.
func (w *twin) doKeepClose() error {
	k := &w.keeper
	if k.real == nil {
		return nil
	}
	err := k.real.Close()
	synctest.Wait()
	k.closing = true
	failed := w.m.write(func(tx *modelTx) error {
		if k.live() && w.m.session(k.session.model.info.ID) != nil {
			tx.end(k.session.model, lockd.ErrClosed)
		}
		return nil
	})
	if err := sameError(err, failed); err != nil || failed != nil {
		return err
	}
	return w.keeperEnded()
}

// keeperEnded forgets the keeper, which must have told its end.
func (w *twin) keeperEnded() error {
	k := w.keeper
	w.keeper = twinKeeper{}
	if k.real != nil && !(isClosed(k.real.Done()) && errors.Is(k.real.Err(), lockd.ErrClosed)) {
		return fmt.Errorf("keeper: it is closed, and does not tell: %w", k.real.Err())
	}
	return nil
}

func (w *twin) compareKeeper() error {
	k := &w.keeper
	if k.real == nil {
		return nil
	}
	if isClosed(k.real.Done()) || k.real.Err() != nil {
		return fmt.Errorf("keeper: it has ended with %w", k.real.Err())
	}
	got, ok := k.real.Current()
	if ok != k.live() || ok && got != k.session.real {
		return fmt.Errorf("keeper: current is %v, want %v", ok, k.live())
	}
	return nil
}
