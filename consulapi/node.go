package consulapi

import (
	"strings"

	"github.com/lockd/lockd/catalog"
)

const (
	serfHealth = "serfHealth"
	address    = "127.0.0.1"
)

// sameName reports whether two names, of nodes or checks, are equal in all but case (S39, N17).
func sameName(a, b string) bool { return folded(a) == folded(b) }

func folded(name string) string { return strings.ToLower(name) }

// node is a node as it is in JSON (T15).
type node struct {
	ID              string
	Node            string
	Address         string
	Datacenter      string
	TaggedAddresses map[string]string
	Meta            map[string]string
	CreateIndex     uint64
	ModifyIndex     uint64
}

// newNode shows a node. The node of this process has one address for all purposes, unless the
// program has put it with more.
func (h *handler) newNode(n catalog.Node) node {
	shown := node{
		ID: n.ID, Node: n.Name, Address: n.Address, Datacenter: h.opts.Datacenter,
		TaggedAddresses: hidden[string](n.Meta, taggedKey), Meta: visible(n.Meta),
		CreateIndex: n.CreateIndex, ModifyIndex: n.ModifyIndex,
	}
	if sameName(n.Name, h.opts.Node) && shown.TaggedAddresses == nil {
		shown.TaggedAddresses = map[string]string{
			"lan": n.Address, "lan_ipv4": n.Address, "wan": n.Address, "wan_ipv4": n.Address,
		}
	}
	return shown
}
