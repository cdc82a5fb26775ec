package consulapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// request is one request, with what is parsed of it for all endpoints.
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

// checkPlace refuses a request for another datacenter, and for what only Consul's enterprise
// edition has.
func (h *handler) checkPlace(r *request) error {
	if dc := r.query.Get("dc"); dc != "" && dc != h.opts.Datacenter {
		return refuse(http.StatusInternalServerError, "No path to datacenter")
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

// readBody returns the whole body, whether it is chunked or not (X16), or an error if it is longer
// than the limit, which the help tells more about, if there is any.
func (r *request) readBody(limit int, help string) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	tooLarge := func(size string) error {
		if help != "" {
			help = " See " + help + "."
		}
		r.drain(limit + 1)
		return refuse(http.StatusRequestEntityTooLarge,
			"Request body%s too large, max size: %d bytes.%s", size, limit, help)
	}
	if r.ContentLength > int64(limit) {
		return nil, tooLarge(fmt.Sprintf("(%d bytes)", r.ContentLength))
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(limit)+1))
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong || len(body) > limit {
		return nil, tooLarge("")
	}
	if err != nil {
		return nil, badRequest("read body: %v", err)
	}
	return body, nil
}

// drain reads up to so many bytes of a body that is refused: a client that is still writing it
// when the connection is closed may never see why. One that asks before it writes is told.
func (r *request) drain(most int) {
	if r.Body != nil && r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, r.Body, int64(most)) // it is refused either way
	}
}
