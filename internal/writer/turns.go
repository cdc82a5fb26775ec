package writer

import "github.com/lockd/lockd/internal/hook"

// begin is called by every call of the user before it locks the mutex. Calls by the function of an
// Update are part of the Update's turn.
func (w *Writer) begin() {
	// running is read without the mutex: one goroutine runs at a time.
	if w.Turns != nil && !w.function.running {
		w.Turns.Begin()
	}
}

// Wait tells a test that the caller is about to wait, and why. keys are the keys whose locks the
// caller waits for, if any. The caller calls end when it has waited.
func (w *Writer) Wait(why hook.Reason, keys []string) (end func()) {
	if w.Turns == nil {
		return func() {}
	}
	return w.Turns.Wait(why, keys)
}

// hold is Wait for a caller that then owns something that other callers need.
func (w *Writer) hold() (end func()) {
	if w.Turns == nil {
		return func() {}
	}
	return w.Turns.Hold()
}

// joinTurns is called by the writer's goroutine, which calls leave when it ends.
func (w *Writer) joinTurns() (leave func()) {
	if w.Turns == nil {
		return func() {}
	}
	return w.Turns.Join()
}
