package main

import (
	"sync"
	"time"
)

// refusalPause is how long no refusal is logged after one was.
const refusalPause = 10 * time.Second

// refusals says which refusals to log: one in ten seconds, since strangers can cause as many as
// they like. The zero value is ready to use. Its methods may be called by many goroutines.
type refusals struct {
	mu sync.Mutex // guards what follows

	logged time.Time // when a refusal was logged
	count  int       // how many since
}

// due counts one refusal. It returns how many there were since the last one that was logged, or 0
// if this one is not to be logged.
func (r *refusals) due() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	now := time.Now()
	if !r.logged.IsZero() && now.Sub(r.logged) < refusalPause {
		return 0
	}
	count := r.count
	r.logged, r.count = now, 0
	return count
}
