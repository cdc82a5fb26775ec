package engine

import (
	"cmp"
	"iter"
	"slices"

	"github.com/lockd/lockd/internal/schema"
)

// shares are the holders of one lock that is shared: a share for each grant. The zero value is of a
// lock that is not shared.
type shares struct {
	n     int
	loose int                // how many have no handle
	only  *share             // if there is one
	all   map[grantID]*share // if there are more

	// removes is set when a holder with RemoveAfter created the key: then the last holder deletes
	// the key, if it has RemoveAfter too. The row of each share says the same, so that removes is
	// still right after a drop, which may bring rows back before it takes others away.
	removes bool
}

// grantID tells the grants of one lock apart. What one session is granted in one transaction is one
// grant.
type grantID struct {
	session *Session
	fence   uint64
}

// share is one grant of a lock that is shared.
type share struct {
	row     *schema.Share
	state   *lockState
	session *Session
	holds   []*Hold  // its handles: several if calls were served in the same transaction
	first   [1]*Hold // the memory of holds, as a rule

	prev, next *share // in the session's list
}

func (s *share) id() grantID { return grantID{s.session, s.row.Fence()} }

// find returns the share of a grant, or nil.
func (s *shares) find(id grantID) *share {
	if s.only != nil && s.only.id() == id {
		return s.only
	}
	return s.all[id]
}

func (s *shares) add(added *share) {
	s.n++
	s.loose++
	s.removes = added.row.Removes
	if s.n == 1 {
		s.only = added
		return
	}
	if s.all == nil {
		s.all = make(map[grantID]*share)
	}
	if s.only != nil {
		s.all[s.only.id()], s.only = s.only, nil
	}
	s.all[added.id()] = added
}

// remove takes out a share whose handles are gone.
func (s *shares) remove(removed *share) {
	s.n--
	s.loose--
	if s.only == removed {
		s.only = nil
	} else {
		delete(s.all, removed.id())
	}
	if s.n == 0 {
		s.all, s.removes = nil, false
	}
}

// inOrder returns the shares in the order of their grants.
func (s *shares) inOrder() []*share {
	var list []*share
	if s.only != nil {
		list = append(list, s.only)
	}
	for _, one := range s.all {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b *share) int {
		return cmp.Compare(a.row.Row, b.row.Row)
	})
	return list
}

// sharesOf yields the session's shares of the lock. The one just yielded may be removed.
func (s *Session) sharesOf(state *lockState) iter.Seq[*share] {
	return func(yield func(*share) bool) {
		if state == nil || state.shares.n == 0 {
			return
		}
		if only := state.shares.only; only != nil { // the session may share many other locks
			if only.session == s {
				yield(only)
			}
			return
		}
		for one := s.shares; one != nil; {
			next := one.next
			if one.state == state && !yield(one) {
				return
			}
			one = next
		}
	}
}

// looseShare returns the newest share of the lock that the session has without a handle, or nil.
// Failed commits take the ends of shares back in another order than that of the grants.
func (s *Session) looseShare(state *lockState) (newest *share) {
	if state == nil || state.shares.loose == 0 { // as a rule
		return nil
	}
	for one := range s.sharesOf(state) {
		if len(one.holds) == 0 && (newest == nil || one.row.Fence() > newest.row.Fence()) {
			newest = one
		}
	}
	return newest
}

// attach makes hold a handle of the share.
func (s *share) attach(hold *Hold) {
	if len(s.holds) == 0 {
		s.state.shares.loose--
	}
	s.holds = append(s.holds, hold)
}

// detach removes hold from the handles of the share.
func (s *share) detach(hold *Hold) {
	i := slices.Index(s.holds, hold)
	if s.holds = slices.Delete(s.holds, i, i+1); len(s.holds) == 0 {
		s.state.shares.loose++
	}
}
