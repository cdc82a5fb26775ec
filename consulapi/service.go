package consulapi

import (
	"net/netip"
	"strings"

	"github.com/lockd/lockd/catalog"
)

// service is a service of a node as it is in JSON (T15). Members that lockd does not keep have
// Consul's defaults.
type service struct {
	ID                string
	Service           string
	Tags              []string
	Address           string
	TaggedAddresses   map[string]serviceAddress `json:",omitempty"`
	Meta              map[string]string
	Port              int `json:",omitempty"`
	Weights           weights
	EnableTagOverride bool
	Proxy             struct{}
	Connect           struct{}
	CreateIndex       uint64
	ModifyIndex       uint64
}

type weights struct{ Passing, Warning int }

func newService(s catalog.Service) service {
	return service{
		ID: s.ID, Service: s.Name, Tags: append([]string{}, s.Tags...), Address: s.Address,
		TaggedAddresses: hidden[serviceAddress](s.Meta, taggedKey),
		Meta:            visible(s.Meta), Port: s.Port, Weights: weights{Passing: 1, Warning: 1},
		CreateIndex: s.CreateIndex, ModifyIndex: s.ModifyIndex,
	}
}

// orEmpty returns meta, or an empty map for nil, which would be null in JSON.
func orEmpty(meta map[string]string) map[string]string {
	if meta == nil {
		return map[string]string{}
	}
	return meta
}

// isAnyAddress reports whether the address is unspecified, as 0.0.0.0 is, so that no client can
// reach a service by it.
func isAnyAddress(address string) bool {
	ip, _ := netip.ParseAddr(strings.Trim(address, "[]")) // the zero Addr if it is a name
	return ip.IsUnspecified()
}
