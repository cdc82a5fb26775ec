package hub

// Topic is a scope that is watched. All watchers of one scope share one Topic until it fires; a
// topic fires once. A [Hub] makes topics; the zero value is not usable.
type Topic struct {
	scope   Scope
	changed chan struct{}

	first    uint64 // written before changed is closed, and never again
	watchers int    // protected by Hub.mu
}

// newTopic returns a topic without watchers.
func newTopic(scope Scope) *Topic {
	return &Topic{scope: scope, changed: make(chan struct{})}
}

// Changed returns the channel that is closed at the first event in scope after the topic was
// subscribed to, or when the hub is closed. It does not block.
func (t *Topic) Changed() <-chan struct{} { return t.changed }

// First returns the index of the event that closed the channel, or 0 if the hub's Close did that.
// The caller has seen that the channel is closed. It does not block.
func (t *Topic) First() uint64 { return t.first }

// fire closes the channel. It is called once, under Hub.mu.
func (t *Topic) fire(index uint64) {
	t.first = index
	close(t.changed)
}
