package main

import (
	"os"
	"os/signal"
)

// signals are those that lockd lock does something about, until stop is called.
type signals struct {
	ending chan os.Signal // those that end the wait for the lock, and go to the command
	others chan os.Signal // those that go to the command only, once it runs
	told   bool           // whether an ending one has come
}

// newSignals has the ending signals come, but for those that are ignored: nohup has that of a
// hangup ignored, and a shell that of an interrupt for what runs in the background. They stay so,
// for the command too. (Whether a SIGQUIT was ignored before this process began, Go does not tell.)
func newSignals() *signals {
	s := &signals{ending: make(chan os.Signal, 8), others: make(chan os.Signal, 8)}
	for _, one := range ending {
		if !signal.Ignored(one) {
			signal.Notify(s.ending, one)
		}
	}
	return s
}

// passOn has the others come too. Before, they do to this process what they do to any: while it
// waits, Ctrl-Z stops it.
func (s *signals) passOn() {
	for _, one := range passedOn {
		signal.Notify(s.others, one)
	}
}

// stop has all of them do again what they do to any process.
func (s *signals) stop() {
	signal.Stop(s.ending)
	signal.Stop(s.others)
}

// onFirst calls fn with the first ending signal, unless one has come before, until done is called.
// The next one ends the process at once, as it does lockd serve: all that is left to do then is to
// give something back, and the server may be long in answering.
func (s *signals) onFirst(fn func(os.Signal)) (done func()) {
	if s.told {
		signal.Stop(s.ending)
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case one := <-s.ending:
			s.told = true
			signal.Stop(s.ending)
			fn(one)
		case <-quit:
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}
