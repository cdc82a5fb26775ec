package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/lockd/lockd"
)

// kill starts this program once more on the file, and kills that process while it writes. It
// returns the last thing that was acknowledged to it.
func (s *story) kill(ctx context.Context) (last report, err error) {
	program, err := os.Executable()
	if err != nil {
		return last, err
	}
	child := exec.CommandContext(ctx, program, "-child", s.path, "-ttl", s.ttl.String())
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		return last, err
	}
	if err := child.Start(); err != nil {
		return last, err
	}
	defer func() { // in any case, the file is free when the process is gone
		child.Process.Kill()
		child.Wait()
	}()
	reports := json.NewDecoder(out)
	if err := reports.Decode(&last); err != nil {
		return last, fmt.Errorf("process %d reports nothing: %w", child.Process.Pid, err)
	}
	s.say("process %d leads, its sequencer is %s", child.Process.Pid, last.Leader)
	if err := s.risen(last.Leader); err != nil {
		return last, err
	}
	_, err = lockd.Open(s.path, &lockd.Options{OpenTimeout: s.ttl / 10})
	if err := s.refused("this process opens the file too", err, lockd.ErrInUse); err != nil {
		return last, err
	}
	if err := child.Process.Kill(); err != nil {
		return last, err
	}
	for err = nil; err == nil; { // half a line is not a report
		var next report
		if err = reports.Decode(&next); err == nil {
			last = next
		}
	}
	if child.Wait() == nil {
		return last, fmt.Errorf("process %d ended by itself", child.Process.Pid)
	}
	s.say("process %d is gone (%v), %d writes after it began", child.Process.Pid,
		child.ProcessState, last.Count)
	return last, nil
}
