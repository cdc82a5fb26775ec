package waitq

import "iter"

// Queue is a queue of waiters, in the order in which they came. The zero value is empty and ready.
// A Queue must not be copied. The owner's mutex guards it.
type Queue[W any] struct {
	first, last *Place[W] // the waiting places, in the order of their tickets
	waiting     int       // how many they are
	aside       int       // how many are set aside, and so in no list
	tickets     uint64    // how many were ever given out
}

// Push puts w at the tail, in the place p. The caller provides p, so that it can be part of the
// waiter: a zero place, or one that has been left. p must not be copied after that.
func (q *Queue[W]) Push(w W, p *Place[W]) {
	q.tickets++
	*p = Place[W]{Waiter: w, queue: q, ticket: q.tickets}
	q.insert(p, q.last)
}

// Front returns the place of the waiter that has waited longest, or nil if none waits. Its time
// does not depend on how many places are set aside.
func (q *Queue[W]) Front() *Place[W] { return q.first }

// Len returns how many wait. Those that are set aside do not count.
func (q *Queue[W]) Len() int { return q.waiting }

// Empty reports whether no waiter stands in the queue, not even one that is set aside. If so, the
// owner may forget the queue.
func (q *Queue[W]) Empty() bool { return q.waiting+q.aside == 0 }

// Places returns an iterator over the waiting places, the longest waiting first. The place
// just yielded may leave or be set aside during the walk; otherwise the queue must not be changed.
func (q *Queue[W]) Places() iter.Seq[*Place[W]] {
	return func(yield func(*Place[W]) bool) {
		for p := q.first; p != nil; {
			next := p.next // p may be gone when yield returns
			if !yield(p) {
				return
			}
			p = next
		}
	}
}

// insert puts p among the waiting places: behind the place given, or first if that is nil.
func (q *Queue[W]) insert(p, behind *Place[W]) {
	p.previous = behind
	if behind == nil {
		p.next, q.first = q.first, p
	} else {
		p.next, behind.next = behind.next, p
	}
	if p.next == nil {
		q.last = p
	} else {
		p.next.previous = p
	}
	q.waiting++
}

// unlink takes p from among the waiting places.
func (q *Queue[W]) unlink(p *Place[W]) {
	if p.previous == nil {
		q.first = p.next
	} else {
		p.previous.next = p.next
	}
	if p.next == nil {
		q.last = p.previous
	} else {
		p.next.previous = p.previous
	}
	p.previous, p.next = nil, nil
	q.waiting--
}
