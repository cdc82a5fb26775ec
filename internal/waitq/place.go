package waitq

// Place is where a waiter stands in a queue, after [Queue.Push]; the zero value is a place that has
// been left. The owner's mutex guards it.
//
// Its methods may be repeated. No method brings back a place that has been left.
type Place[W any] struct {
	// Waiter stands there.
	Waiter W

	queue  *Queue[W] // nil once the place has been left
	ticket uint64    // orders the places, also those that are in no list
	aside  bool

	// Neighbours among the waiting places. While the place is set aside, previous is the one that
	// it stood behind, which may have been set aside or left since; next is nil.
	previous, next *Place[W]
}

// Ahead returns how many wait in front of the place, but no more than most. It counts them, in time
// in proportion to their number. For a place that has been left it returns 0.
func (p *Place[W]) Ahead(most int) int {
	if p.queue == nil {
		return 0
	}
	n := 0
	for other := p.queue.first; n < most && other != nil && other.ticket < p.ticket; n++ {
		other = other.next
	}
	return n
}

// Ticket returns a number that is higher than the ticket of every place that the queue gave out
// before. It does not change, not even when the place is left.
func (p *Place[W]) Ticket() uint64 { return p.ticket }

// SetAside hides the place: the owner has decided that the waiter is served or leaves, but the
// decision may still be dropped. Front, Len and Places leave the place out, and Restore brings it
// back.
func (p *Place[W]) SetAside() {
	if p.queue == nil || p.aside {
		return
	}
	behind := p.previous
	p.queue.unlink(p)
	p.queue.aside++
	p.aside, p.previous = true, behind
}

// Restore undoes SetAside after the decision was dropped: the waiter stands where it stood, behind
// the waiters that came before it and in front of those that came after it. Restore does nothing to
// a place that is not set aside.
//
// It searches from the place that it stood behind, if that one waits: so it does if the places that
// were set aside last are restored first. Otherwise it searches from the front of the queue, where
// most waiters that were served stood.
func (p *Place[W]) Restore() {
	if !p.aside { // nor is one that has been left
		return
	}
	q, behind := p.queue, p.previous
	other := q.first
	if behind != nil && behind.queue == q && !behind.aside && behind.ticket < p.ticket {
		other = behind.next
	} else {
		behind = nil
	}
	for ; other != nil && other.ticket < p.ticket; other = other.next {
		behind = other
	}
	q.aside--
	p.aside = false
	q.insert(p, behind)
}

// Leave gives the place up for good, set aside or not.
func (p *Place[W]) Leave() {
	switch {
	case p.queue == nil:
		return
	case p.aside:
		p.queue.aside--
	default:
		p.queue.unlink(p)
	}
	p.queue, p.aside, p.previous = nil, false, nil
}
