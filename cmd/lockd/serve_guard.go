package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

const (
	// farewell is how long a client whose request is refused has to send the rest of it. It is
	// short, since a client without the token could otherwise keep connections from those that
	// have it.
	farewell = 400 * time.Millisecond

	// refusalTime is how long such a client has to take the answer. The answer fits into the
	// buffers of the connection, so what counts in practice is how long a busy machine takes to
	// send it: with a time as short as farewell, the client sometimes got no answer.
	refusalTime = 10 * time.Second
)

// turnAway refuses a request, and ends its connection, whether or not the client has sent its body.
func turnAway(w http.ResponseWriter, reason string) {
	turnAwayAs(w, http.StatusForbidden, reason)
}

// turnAwayAs refuses a request with another status.
func turnAwayAs(w http.ResponseWriter, status int, reason string) {
	control, now := http.NewResponseController(w), time.Now()
	if control.SetReadDeadline(now.Add(farewell)) != nil ||
		control.SetWriteDeadline(now.Add(refusalTime)) != nil {
		panic(http.ErrAbortHandler) // the connection is gone
	}
	w.Header().Set("Connection", "close") // so that the answer does not wait for the body
	http.Error(w, reason, status)
}

// guarded lets only those requests through that bear the token, and ends those that still wait or
// are streamed to when another token takes its place. For a page of lockdui it may also be the
// password of a login, since a browser that follows a link sends no other header. Only there: a
// browser sends a login with requests of other pages too, which lockdui refuses.
func guarded(token *secret, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inForce := token.inForce.Load()
		switch {
		case inForce.allows(r), isUI(r) && inForce.allowsLogin(r):
			bound, release := inForce.bound(r)
			defer release()
			next.ServeHTTP(w, bound)
		case isUI(r):
			if r.Header.Get("Authorization") != "" { // else the person has not been asked yet
				token.note(r)
			}
			askToLogIn(w)
		default:
			token.note(r)
			turnAway(w, "Permission denied")
		}
	})
}

// sameOrigin refuses what a browser sends for a page of another origin. That holds for reads too:
// the page does not see the answer, but the server makes it.
func sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write := *r // the protection lets every read pass
		write.Method = http.MethodPost
		if err := protection.Check(&write); err != nil {
			turnAway(w, "Permission denied: "+err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// local refuses requests for another host name than this machine's: a web page could let its own
// host name stand for this machine, and would get what only programs on this machine may get.
func local(hostname string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r.Host, hostname) {
			turnAway(w, fmt.Sprintf("Permission denied: host %q may be a name that a stranger "+
				"gave this machine: ask for localhost or an address, or serve with a --token-file",
				r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocal reports whether the host, with or without a port, is an address, or a name that no
// stranger can give this machine. A browser always names a host.
func isLocal(host, hostname string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(host)
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "" || host == "localhost" ||
		strings.HasSuffix(host, ".localhost") || host == strings.ToLower(hostname)
}
