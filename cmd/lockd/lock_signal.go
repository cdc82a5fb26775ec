package main

import (
	"os"
	"os/signal"
	"time"
)

// burst is how long after the first ending signal others count as the same: timeout(1) sends its
// signal to the process, and at once to the process's group.
const burst = time.Second / 2

// signals are the signals that lockd lock, lockd serve or a command that writes a backup handles,
// until stop is called.
type signals struct {
	ending   chan os.Signal // those that end the wait for the lock, and go to the command
	others   chan os.Signal // those that go to the command only, once it runs
	children chan os.Signal // those that tell of the end of a child, once the command runs
	ended    bool           // whether an ending one has come
}

// newSignals catches the ending signals, except those that are ignored: nohup ignores SIGHUP, and a
// shell ignores SIGINT for what runs in the background. They stay ignored, for the command too. (Go
// does not tell whether a SIGQUIT was ignored before this process began.)
func newSignals(ending ...os.Signal) *signals {
	s := &signals{
		ending: make(chan os.Signal, 8), others: make(chan os.Signal, 8),
		children: make(chan os.Signal, 1), // one tells of all
	}
	for _, one := range ending {
		if !signal.Ignored(one) {
			signal.Notify(s.ending, one)
		}
	}
	return s
}

// passOn catches the other signals too, and those of children. Before, they have their usual effect
// on this process: while it waits, Ctrl-Z stops it.
func (s *signals) passOn() {
	for _, one := range passedOn {
		signal.Notify(s.others, one)
	}
	for _, one := range childEnds {
		signal.Notify(s.children, one)
	}
}

// stop gives all signals their usual effect again.
func (s *signals) stop() {
	signal.Stop(s.ending)
	signal.Stop(s.others)
	signal.Stop(s.children)
}

// onFirst calls fn with the first ending signal, unless one has come before, until done is called.
// After the burst, the next one ends the process at once: all that is left to do then is to release
// something, and the server may take long to answer.
func (s *signals) onFirst(fn func(os.Signal)) (done func()) {
	endsAtNext := func() { time.AfterFunc(burst, func() { signal.Stop(s.ending) }) }
	if s.ended {
		endsAtNext()
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case one := <-s.ending:
			s.ended = true
			endsAtNext()
			fn(one)
		case <-quit:
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}
