package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockd/lockd"
)

// elect lets three workers campaign. The first leads, writes, and is lost; the worker that has
// waited longest leads after it.
func (s *story) elect(ctx context.Context) (lost, next *worker, err error) {
	for i, name := range []string{"mysql-1", "mysql-2", "mysql-3"} {
		w, err := s.hire(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		s.workers = append(s.workers, w)
		w.campaign(ctx)
		if i == 0 {
			err = s.leads(w)
		} else {
			err = s.queued(ctx, i)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	lost, next = s.workers[0], s.workers[1]
	_, err = s.workers[2].session.TryLock(leaderKey, nil)
	held, ok := errors.AsType[*lockd.LockedError](err)
	if !ok || held.Obstacle != lockd.ObstacleHolder || held.HolderName != lost.name {
		return nil, nil, fmt.Errorf("TryLock of a held lock: %v", err)
	}
	s.say("%s asks for the lock without waiting\n        → %v", s.workers[2].name, err)
	for _, text := range []string{"10.0.0.7", "10.0.0.8", "10.0.0.9"} {
		if err := s.write(lost, text); err != nil {
			return nil, nil, err
		}
	}
	return lost, next, s.lose(ctx, lost, next)
}

// lose lets the leader's TTL run out, and waits until the next one leads.
func (s *story) lose(ctx context.Context, leader, next *worker) error {
	leader.pause()
	renewed := time.Now()
	if err := leader.session.Renew(); err != nil {
		return err
	}
	select {
	case <-leader.lock.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	lived := time.Since(renewed)
	err := leader.lock.Err()
	if lived < s.ttl {
		return fmt.Errorf("%s lost its lock %v after it renewed: %w", leader.name, lived, err)
	}
	what := fmt.Sprintf("%s renewed no more, and lost its lock %v later", leader.name, ms(lived))
	if err := s.refused(what, err, lockd.ErrExpired); err != nil {
		return err
	}

	_, err = s.workers[2].session.TryLock(leaderKey, nil)
	delay, ok := errors.AsType[*lockd.LockedError](err)
	if !ok || delay.Obstacle != lockd.ObstacleDelay {
		return fmt.Errorf("TryLock in the lock-delay: %v", err)
	}
	s.say("%s asks again\n        → %v", s.workers[2].name, err)
	if err := s.leads(next); err != nil {
		return err
	}
	if now := time.Now(); now.Before(delay.Until) {
		return fmt.Errorf("%s leads at %v, with a lock-delay until %v", next.name, now, delay.Until)
	}
	return nil
}
