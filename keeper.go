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
	"github.com/lockd/lockd/internal/ending"
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/internal/writer"
)

// Keeper keeps one session alive: the database renews it in time, and when the session has ended,
// the next call of Session or Lead makes another. A Keeper has to be closed.
//
// A Keeper never has two sessions: it makes none before the end of the previous one is durable and
// its Done is closed. The session is renewed even if the work under its locks hangs: see
// SessionOptions.TTL. Keeper.Close and DB.Close end the session, even if it is Independent. If the
// process is killed, an Independent session stays in the file, with its locks, until its TTL ends
// it.
type Keeper struct {
	db     *DB
	opts   SessionOptions
	ending ending.Ending

	// All are written under the writer's mutex.
	newest atomic.Pointer[Session] // the last session made, even if its creation was dropped
	lived  atomic.Bool             // a session before newest was durable, and has ended
	closed atomic.Bool             // Close was called: no session is made any more
}

var errKeeperClosed = fmt.Errorf("keeper %w; NewKeeper gives another", ErrClosed)

// NewKeeper returns a keeper of sessions with these options. It does not block, and makes no
// session: Keeper.Session and Keeper.Lead do. It returns ErrInvalid for an Independent session
// without a TTL, and ErrClosed and ErrFailed as a write does.
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
		db.writer.LockBeside()
		if err = db.writer.Refused(); err == nil {
			db.keepers[&k.ending] = struct{}{}
		}
		db.writer.Unlock()
	}
	return result(k, "new keeper", k.opts.Name, err)
}

// Current returns the live session, and whether there is one. It makes none.
func (k *Keeper) Current() (*Session, bool) {
	s := k.newest.Load()
	if s == nil || s.Err() != nil || k.db.rows.Sessions.Get(string(s.state.Row.ID[:])) == nil {
		return nil, false // none, ended, not yet durable, or about to be told of its end
	}
	return s, true
}

// Session returns the live session, and makes one if there is none. It tries again after a commit
// that did not succeed, with a backoff from 1 s up to 1 min. It waits while a check of its options
// is critical. If their node or a check is missing, it waits too, but before the first session it
// returns catalog.ErrNoNode or ErrNoCheck. It returns ErrClosed after Keeper.Close too.
func (k *Keeper) Session(ctx context.Context) (*Session, error) {
	mustHave(ctx != nil, "context")
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
			continue // a session is there now, or the end of the last one is known
		case errors.Is(err, ErrCommit):
			err = k.rest(ctx, SessionsScope(), before.IndexOf(SessionsScope()), wait.next())
		case k.passes(err):
			err = k.rest(ctx, CatalogScope(), before.IndexOf(CatalogScope()), 0)
		}
		if err != nil {
			return nil, err
		}
	}
}

// ensure makes a session, unless the last one lives or its end is not known yet. It returns when
// what it found or made is durable, or ctx ends.
func (k *Keeper) ensure(ctx context.Context) error {
	db := k.db
	outcome, _ := db.writer.Start(ctx.Done(), func(tx *engine.Txn) (queued bool, err error) {
		if k.closed.Load() {
			return false, errKeeperClosed
		}
		if s := k.newest.Load(); s != nil && db.engine.Known(s.state.Row.ID) == &s.state {
			return false, nil
		}
		s, err := tx.NewSession(k.opts.row(db.newID()))
		if err == nil {
			s.EndWithKeeper()
			db.engine.Keep(s, tx.Time())
			db.waitsMoved()
			if old := k.newest.Swap(handleOf(s).session); old != nil && old.Err() != nil {
				k.lived.Store(true)
			}
		}
		return false, err
	})
	return outcome.Wait(ctx, nil)
}

// passes reports whether a change of the catalog may end the refusal. A missing name is more likely
// a mistake, unless it was there before.
func (k *Keeper) passes(err error) bool {
	if errors.Is(err, catalog.ErrNoNode) || errors.Is(err, catalog.ErrNoCheck) {
		newest := k.newest.Load() // it has ended, or its creation was dropped
		return k.lived.Load() || newest != nil && newest.Err() != nil
	}
	return errors.Is(err, catalog.ErrCheckCritical)
}

// Done returns a channel that is closed when the end of the session by Close is durable, or at the
// end of the database.
func (k *Keeper) Done() <-chan struct{} { return k.ending.Done() }

// Err returns nil until Done is closed, and then ErrClosed or ErrFailed.
func (k *Keeper) Err() error { return k.ending.Err() }

// Close ends the session as Session.Close does, so stop the work under its locks first. From the
// call on the keeper makes no session.
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
			k.ending.End(errKeeperClosed)
		} else if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrFailed) {
			return err
		}
		<-k.Done() // the end of the database ends its keepers
	}
	db.writer.Lock()
	defer db.writer.Unlock()
	delete(db.keepers, &k.ending)
	if s := k.newest.Load(); s != nil && s.state.Live() {
		return db.writer.Refused()
	}
	return nil
}

// rest waits until the scope has changed after the index, or, unless d is 0, until d has passed. It
// returns an error if ctx, the keeper or the database ends first.
func (k *Keeper) rest(ctx context.Context, scope Scope, index uint64, d time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // frees the child
	_, _, err := k.db.wait(k.ending.Context(ctx), scope, index, d)
	if ended := k.Err(); err != nil && ended != nil {
		return ended
	}
	return err
}

// pause waits for d, as rest does.
func (k *Keeper) pause(ctx context.Context, d time.Duration) error {
	return k.rest(ctx, Scope{}, schema.FirstIndex, d)
}

// backoff is the length of the last wait before a retry.
type backoff time.Duration

// next returns the length of the next wait.
func (b *backoff) next() time.Duration {
	*b = backoff(min(max(writer.FirstBackoff, 2*time.Duration(*b)), writer.LastBackoff))
	return time.Duration(*b)
}
