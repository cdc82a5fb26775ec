package main

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"time"

	"github.com/lockd/lockd"
)

// report is what lockd has promised to the process that is killed, on one line of its output.
type report struct {
	Leader lockd.Sequencer // of a session that is bound to the process
	Backup lockd.Sequencer // of a session that is not
	Count  int
	Index  uint64 // of the write of Count
}

// live runs in the process that is killed: it takes two locks, and then writes, and reports what
// was acknowledged, until it is killed.
func live(ctx context.Context, path string, ttl time.Duration) error {
	db, err := lockd.Open(path, nil)
	if err != nil {
		return err
	}
	bound, err := db.NewSession(&lockd.SessionOptions{Name: "mysql-4", LockDelay: ttl})
	if err != nil {
		return err
	}
	free, err := db.NewSession(&lockd.SessionOptions{
		Name: "backup", TTL: time.Minute, Lifetime: lockd.Independent,
	})
	if err != nil {
		return err
	}
	leader, err := bound.TryLock(leaderKey, nil) // the last leader's Close left no lock-delay
	if err != nil {
		return err
	}
	backup, err := free.TryLock(backupKey, nil)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for n := 1; ctx.Err() == nil; n++ {
		value := []byte(strconv.Itoa(n))
		entry, err := db.If(leader.Sequencer()).Put(countKey, value, nil)
		if err != nil {
			return err
		}
		err = out.Encode(report{leader.Sequencer(), backup.Sequencer(), n, entry.ModifyIndex})
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
