package consulapi

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/lockd/lockd"
)

// given is what a client sent for a session and gets back as it was, whatever lockd makes of it.
type given struct {
	LockDelay     time.Duration
	Behavior      string
	TTL           string
	NodeChecks    []string
	ServiceChecks []serviceCheck
	Checks        []string `json:",omitempty"`
}

// serviceCheck is a check of a service that a session is bound to.
type serviceCheck struct {
	ID        string
	Namespace string
}

// resolveChecks decides whether Checks, the old member, or NodeChecks counts (S7).
func (g *given) resolveChecks() {
	switch {
	case len(g.Checks) == 0:
		g.NodeChecks = []string{}
	case slices.Equal(g.Checks, []string{serfHealth}), len(g.NodeChecks) == 0:
		g.Checks = nil
	}
}

// metaKey is the key of a session's Meta that holds kept.
const metaKey = "consul"

// kept is given without the IDs of the checks, since a Meta has little room. The session has these
// itself: the IDs in Checks, NodeChecks and ServiceChecks, in this order, each once.
type kept struct {
	LockDelay     time.Duration
	Behavior      string
	TTL           string
	Checks        *int           // how many; nil: null
	NodeChecks    *int           // the same
	ServiceChecks *int           // the same
	Repeated      map[int]string `json:",omitempty"` // IDs that occurred before, by place
	Namespaces    map[int]string `json:",omitempty"` // of ServiceChecks that have one, by place
}

// keep sets the options that bind a session to the checks and keep given in its Meta.
func (g *given) keep(opts *lockd.SessionOptions) {
	k := kept{
		LockDelay: g.LockDelay, Behavior: g.Behavior, TTL: g.TTL,
		Repeated: make(map[int]string), Namespaces: make(map[int]string),
	}
	var services []string
	for i, check := range g.ServiceChecks {
		services = append(services, check.ID)
		if check.Namespace != "" {
			k.Namespaces[i] = check.Namespace
		}
	}
	if g.Checks != nil {
		k.Checks = new(len(g.Checks))
	}
	if g.NodeChecks != nil {
		k.NodeChecks = new(len(g.NodeChecks))
	}
	if g.ServiceChecks != nil {
		k.ServiceChecks = new(len(g.ServiceChecks))
	}
	seen := make(map[string]struct{})
	for place, id := range slices.Concat(g.Checks, g.NodeChecks, services) {
		if _, again := seen[folded(id)]; again {
			k.Repeated[place] = id
			continue
		}
		seen[folded(id)] = struct{}{}
		opts.Checks = append(opts.Checks, id)
	}
	opts.Meta = map[string]string{metaKey: string(marshal(k))}
}

// givenOf returns what a client sent for a session. It reports false for a session not made here.
func givenOf(info lockd.SessionInfo) (given, bool) {
	var k kept
	if json.Unmarshal([]byte(info.Meta[metaKey]), &k) != nil {
		return given{}, false
	}
	ids := info.Checks
	place := 0
	take := func(n *int) (list []string) {
		if n == nil {
			return nil
		}
		list = []string{}
		for ; len(list) < *n; place++ {
			id, repeated := k.Repeated[place]
			if !repeated {
				if len(ids) == 0 {
					break // this Meta was written elsewhere
				}
				id, ids = ids[0], ids[1:]
			}
			list = append(list, id)
		}
		return list
	}
	g := given{LockDelay: k.LockDelay, Behavior: k.Behavior, TTL: k.TTL}
	g.Checks, g.NodeChecks = take(k.Checks), take(k.NodeChecks)
	if k.ServiceChecks != nil {
		g.ServiceChecks = []serviceCheck{}
	}
	for i, id := range take(k.ServiceChecks) {
		g.ServiceChecks = append(g.ServiceChecks, serviceCheck{id, k.Namespaces[i]})
	}
	return g, true
}
