package consulapi

import (
	"sync/atomic"

	"github.com/lockd/lockd"
)

// handler is what every endpoint is a method of, and stands on. The endpoints of a noun are in the
// file of its name: kv.go, session.go, … There a method …Routes lists their paths, which newRouter
// takes up. An endpoint that reads goes through handler.read, which makes it a blocking query.
type handler struct {
	db         *lockd.DB
	opts       Options // complete
	compressor compressor

	blocked   atomic.Int64 // queries that wait
	repairing atomic.Bool  // the node of this process will be put right
}

// method is what a path does for one HTTP method.
type method struct {
	name  string
	serve endpoint
}

// endpoint answers one request, whose query is parsed. An error becomes an answer by failed.
type endpoint func(r *request) (answer, error)

// named is an endpoint whose path has to go on with a name or an ID. It refuses any other request
// with the text.
func named(missing string, serve endpoint) endpoint {
	return func(r *request) (answer, error) {
		if r.rest == "" {
			return answer{}, badRequest("%s", missing)
		}
		return serve(r)
	}
}
