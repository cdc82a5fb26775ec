package consulapi

import (
	"net/http"
	"net/url"
	"time"
)

// request is one request, with the parts that are parsed for all endpoints.
type request struct {
	*http.Request
	query url.Values
	rest  string // what follows the path of the route, decoded once

	index uint64        // of a blocking query; 0: it does not block
	wait  time.Duration // how long it blocks

	consistency string // of a read, as its answer tells it
}

// consistencyHeader tells how consistent a read of the catalog or of a query is (B15).
func (r *request) consistencyHeader() http.Header {
	return http.Header{"X-Consul-Effective-Consistency": {r.consistency}}
}

// has reports whether the query names the parameter, with whatever value.
func (r *request) has(name string) bool { return r.query.Has(name) }

// checkPlace refuses a request for another datacenter than this one, or for a namespace or
// partition, which only Consul's enterprise edition has.
func (r *request) checkPlace(datacenter string) error {
	if err := checkDatacenter(r.query.Get("dc"), datacenter); err != nil {
		return err
	}
	for _, place := range []struct{ name, header, plural string }{
		{"ns", "X-Consul-Namespace", "Namespaces"},
		{"partition", "X-Consul-Partition", "Partitions"},
	} {
		if r.Header.Get(place.header) != "" {
			return badRequest("Invalid header: %q - %s are a Consul Enterprise feature",
				place.header, place.plural)
		}
		if r.query.Get(place.name) != "" {
			return badRequest("Invalid query parameter: %q - %s are a Consul Enterprise feature",
				place.name, place.plural)
		}
	}
	return nil
}

// checkDatacenter refuses the name of another datacenter than the own one. No name is the own one.
func checkDatacenter(name, own string) error {
	if name != "" && name != own {
		return mistake("No path to datacenter")
	}
	return nil
}
