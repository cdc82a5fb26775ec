package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockd/lockd"
)

// worker is a candidate for leader.
type worker struct {
	name    string
	session *lockd.Session
	pause   context.CancelFunc // ends the renewals of its session
	elected chan error         // has the outcome of its campaign
	lock    *lockd.Lock        // valid after elected has sent nil
}

// hire makes a worker, which keeps its session alive until it is paused.
func (s *story) hire(ctx context.Context, name string) (*worker, error) {
	session, err := s.db.NewSession(&lockd.SessionOptions{
		Name: name, TTL: s.ttl, LockDelay: s.ttl,
	})
	if err != nil {
		return nil, err
	}
	w := &worker{name: name, session: session, elected: make(chan error, 1)}
	ctx, w.pause = context.WithCancel(ctx)
	go session.KeepAlive(ctx)
	return w, nil
}

// campaign waits for the lock in the background.
func (w *worker) campaign(ctx context.Context) {
	go func() {
		var err error
		w.lock, err = w.session.Lock(ctx, leaderKey, &lockd.LockOptions{Value: []byte(w.name)})
		w.elected <- err
	}()
}

// leads waits until the worker leads.
func (s *story) leads(w *worker) error {
	if err := <-w.elected; err != nil {
		return err
	}
	q := w.lock.Sequencer()
	s.say("%s leads, its sequencer is %s", w.name, q)
	return s.risen(q)
}

// queued waits until that many waiters are in the queue. The queue is in the order in which they
// joined it, and a goroutine that calls Lock may take its time.
func (s *story) queued(ctx context.Context, waiters int) error {
	for ctx.Err() == nil {
		_, err := s.workers[0].session.TryLock(leaderKey, nil)
		held, ok := errors.AsType[*lockd.LockedError](err)
		if !ok {
			return fmt.Errorf("TryLock of a held lock: %v", err)
		}
		if held.Waiters == waiters {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return ctx.Err()
}
