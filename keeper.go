package lockd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/writer"
)

// Keeper has one session that lives, renews it in time, and makes another one when it has ended.
// It is for a program that wants to be a holder for as long as it runs, whatever becomes of the
// session that it has just now.
//
// There are never two: no session is made before the end of the one before is known, that is
// durable and told by its Done. The database does the renewing, so a Keeper needs no goroutine; but
// it has to be closed, for a session that nobody uses is renewed too. So is that of a program which
// runs and is stuck: SessionOptions.TTL says what helps against that.
//
// A session never outlives its Keeper: Keeper.Close and DB.Close end it, also if its lifetime is
// Independent. One whose process is killed is in the file for a TTL more, with its locks, and then
// ends with ErrExpired; the Keeper of the next process makes another one meanwhile.
//
// Its methods may be called by many goroutines. The zero value is not usable; DB.NewKeeper gives
// one.
type Keeper struct {
	db   *DB
	opts SessionOptions
	ending

	// Both are written under the writer's mutex.
	newest atomic.Pointer[Session] // the last one made, if its making was not dropped
	closed atomic.Bool             // Close was called: none is made any more
}

var errKeeperClosed = fmt.Errorf("keeper %w; NewKeeper gives another", ErrClosed)

// NewKeeper returns a keeper of sessions that are made with these options. It makes none yet, and
// does not block: the first call of Keeper.Session or Keeper.Lead does that. A nil opts means the
// defaults.
//
// It returns ErrInvalid for options that are out of their bounds, and for a session that is
// Independent and has no TTL: after a crash nobody would end it, or have its locks. It returns
// ErrClosed or ErrFailed. Whether the node and the checks exist is found out when a session is
// made.
func (db *DB) NewKeeper(opts *SessionOptions) (*Keeper, error) {
	k := &Keeper{db: db}
	if opts != nil {
		k.opts = *opts
		k.opts.Checks, k.opts.Meta = slices.Clone(opts.Checks), maps.Clone(opts.Meta)
	}
	err := k.opts.validate()
	if err == nil && k.opts.Lifetime == Independent && k.opts.TTL == 0 {
		err = invalid("SessionOptions.Lifetime is %v, and there is no TTL: after a crash the "+
			"keeper's session would hold its locks for ever", Independent)
	}
	err = db.refused(err)
	if err == nil {
		db.writer.Lock()
		if err = db.writer.Refused(); err == nil {
			db.keepers[k] = struct{}{}
		}
		db.writer.Unlock()
	}
	return result(k, "new keeper", k.opts.Name, err)
}

// Current returns the session that lives, and whether there is one. It makes none, and waits for
// nobody.
func (k *Keeper) Current() (*Session, bool) {
	s := k.newest.Load()
	if s == nil || s.Err() != nil || k.db.rows.Sessions.Get(string(s.state.Row.ID[:])) == nil {
		return nil, false // none, ended, not yet durable, or about to be told of its end
	}
	return s, true
}

// Session returns the session that lives, and makes one if there is none. It blocks until that is
// durable, which takes as long as the reasons why none can be made just now: it tries again when a
// commit did not succeed, after 1 s, then 2 s, up to 1 min, or as soon as another session could be
// made; and it waits for the catalog to change while a check of its options is critical, or, once
// there has been a session, while their node or a check is missing.
//
// It returns ctx's error if that ends first; catalog.ErrNoNode or ErrNoCheck if there has been no
// session yet; ErrClosed after Close, or the database's; or ErrFailed. A nil ctx panics.
//
// The session belongs to the keeper. Who closes it gets another one at the next call.
func (k *Keeper) Session(ctx context.Context) (*Session, error) {
	checkContext(ctx)
	s, err := k.session(ctx)
	return result(s, "keep session", k.opts.Name, err)
}

func (k *Keeper) session(ctx context.Context) (*Session, error) {
	var wait backoff
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if k.closed.Load() {
			return nil, errKeeperClosed
		}
		if s, ok := k.Current(); ok {
			return s, nil
		}
		before := k.db.Snapshot()
		err := k.ensure(ctx)
		switch {
		case err == nil:
			continue // it is there now, or the end of the last one is known
		case errors.Is(err, ErrCommit):
			err = k.rest(ctx, SessionsScope(), before, wait.next())
		case k.passes(err):
			err = k.rest(ctx, CatalogScope(), before, 0)
		}
		if err != nil {
			return nil, err
		}
	}
}

// ensure makes a session unless one lives, or its end is not known yet. It returns when what it
// found or made is durable, or ctx ends.
func (k *Keeper) ensure(ctx context.Context) error {
	db := k.db
	outcome, _ := db.writer.Start(ctx.Done(), func(tx *engine.Txn) (queued bool, err error) {
		if k.closed.Load() {
			return false, errKeeperClosed
		}
		if s := k.newest.Load(); s != nil && db.engine.Known(s.state.Row.ID) == &s.state {
			return false, nil
		}
		s, err := tx.NewSession(k.opts.row())
		if err == nil {
			s.EndWithKeeper()
			db.engine.Keep(s, tx.Time())
			db.waitsMoved()
			k.newest.Store(handleOf(s).session)
		}
		return false, err
	})
	return outcome.Wait(ctx, nil)
}

// passes reports whether a refusal is one that the catalog may put an end to. That a name is
// missing is more likely a mistake, unless it was there before.
func (k *Keeper) passes(err error) bool {
	if errors.Is(err, catalog.ErrNoNode) || errors.Is(err, catalog.ErrNoCheck) {
		return k.newest.Load() != nil
	}
	return errors.Is(err, catalog.ErrCheckCritical)
}

// Done returns a channel that is closed when there will be no session any more: when Close has
// ended the last one, and that is durable, or at the end of the database. The session's own Done is
// closed before.
func (k *Keeper) Done() <-chan struct{} { return k.ending.Done() }

// Err returns nil until then, and after that an error that is ErrClosed, or ErrFailed.
func (k *Keeper) Err() error { return k.ending.Err() }

// Close ends the session, if one lives, as Session.Close does and whatever its lifetime: its locks
// are released without a lock-delay. So who works under them, or leads, has to stop before. It
// blocks until that is durable. From the call on there is no new session.
//
// It returns nil, also when repeated. After ErrCommit the session still lives and is renewed, and
// Close may be called again. If the database ended first, and left the session in its file, it
// returns ErrClosed or ErrFailed.
func (k *Keeper) Close() error { return wrap("close keeper", k.opts.Name, k.close()) }

func (k *Keeper) close() error {
	db := k.db
	if k.Err() == nil {
		err := db.update(func(tx *engine.Txn) error {
			k.closed.Store(true)
			if s := k.newest.Load(); s != nil && s.state.Live() {
				tx.EndSession(&s.state, ErrClosed)
			}
			return nil
		})
		if err == nil {
			k.end(errKeeperClosed)
		} else if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrFailed) {
			return err
		}
		<-k.Done() // the end of the database is that of its keepers
	}
	db.writer.Lock()
	defer db.writer.Unlock()
	delete(db.keepers, k)
	if s := k.newest.Load(); s != nil && s.state.Live() {
		return db.writer.Refused()
	}
	return nil
}

// rest waits until the scope has changed since the snapshot was taken, or, unless it is 0, for d.
// It returns why there is nothing to wait for any more.
func (k *Keeper) rest(
	ctx context.Context, scope Scope, since *Snapshot, d time.Duration,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // gives the topic back
	var changed, over <-chan struct{}
	if since != nil {
		changed = k.db.Changed(ctx, scope, since.IndexOf(scope))
	}
	if d > 0 {
		n := k.db.startNap(d)
		defer k.db.endNap(n)
		over = n.over
	}
	select {
	case <-changed:
		return nil
	case <-over:
		return nil
	case <-k.Done():
		return k.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// backoff is how long the last wait was before something is tried again.
type backoff time.Duration

// next returns how long the next wait is.
func (b *backoff) next() time.Duration {
	*b = backoff(min(max(writer.FirstBackoff, 2*time.Duration(*b)), writer.LastBackoff))
	return time.Duration(*b)
}

// nap ends at an instant of the database's clock, also while an expiry waits to be tried again.
type nap struct {
	due  expiry.Item
	over chan struct{} // closed then
}

func (db *DB) startNap(d time.Duration) *nap {
	n := &nap{over: make(chan struct{})}
	n.due = expiry.Item{Owner: n}
	db.writer.Lock()
	defer db.writer.Unlock()
	if db.writer.Refused() == nil { // else its end tells
		now := db.writer.Time()
		db.watch.naps.Set(&n.due, now.Add(d))
		db.watch.naps.Arm(now)
	}
	return n
}

func (db *DB) endNap(n *nap) {
	db.writer.Lock()
	defer db.writer.Unlock()
	db.watch.naps.Remove(&n.due)
}

// naps are those of keepers.
type naps struct{ *expiry.Queue }

// end ends the naps that are over.
func (n naps) end(now time.Time) {
	if n.Len() == 0 {
		return
	}
	for due := n.Pop(now); due != nil; due = n.Pop(now) {
		close(due.Owner.(*nap).over)
	}
	n.Arm(now)
}
