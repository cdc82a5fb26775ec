package main

import (
	"net/http"

	"github.com/lockd/lockd"
)

// healthPath is where a server says whether the database has failed, so that a restart helps. A
// commit that fails for want of room is no such failure: the next one may succeed. No token is
// asked for there: what checks on a server, such as a load balancer, has none.
const healthPath = "/healthz"

// healthBeside answers requests for the health of the database, and hands every other request on.
// These requests do not pass the guard of the token, and so have limits of their own.
func healthBeside(l limits, db *lockd.DB, next http.Handler) http.Handler {
	health := l.bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
			return
		}
		if err := db.Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // the client may be gone, which is its own affair
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == healthPath {
			health.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
