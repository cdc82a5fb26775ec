package consulapi

import (
	"sync/atomic"

	"github.com/lockd/lockd"
)

// handler has every endpoint as a method. The endpoints of a noun are in the file of its name:
// kv.go, session.go, … There a method …Routes lists their paths, which newRouter collects. An
// endpoint that reads goes through handler.read, which makes it a blocking query.
type handler struct {
	db         *lockd.DB
	opts       Options // complete
	compressor compressor

	blocked   atomic.Int64 // queries that wait
	repairing atomic.Bool  // a repair of the node of this process is due
}

// method is what a path does for one HTTP method.
type method struct {
	name  string
	serve endpoint
}

// endpoint answers one request, whose query is parsed. failed turns an error into an answer.
type endpoint func(r *request) (answer, error)

// named returns an endpoint whose path has to go on with a name or an ID. It refuses a path that
// does not, with the text missing.
func named(missing string, serve endpoint) endpoint {
	return func(r *request) (answer, error) {
		if r.rest == "" {
			return answer{}, badRequest("%s", missing)
		}
		return serve(r)
	}
}
