package main

import (
	"net/http"
	"strings"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdui"
)

// uiPath is where a browser finds the pages that show the database.
const uiPath = "/ui/"

// isUI reports whether the request is for a page. The guard and the handler both go by it.
func isUI(r *http.Request) bool { return strings.HasPrefix(r.URL.Path+"/", uiPath) }

// uiBeside answers requests for pages, and hands every other request on.
func (s *service) uiBeside(db *lockd.DB, next http.Handler) (http.Handler, error) {
	pages, err := lockdui.Handler(db, &lockdui.Options{
		Actions: s.uiActions,
		Hosts:   lockdui.AnyHost, // the guard has the rule, and knows of the token and TLS
		Logger:  s.logger,
	})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !isUI(r):
			next.ServeHTTP(w, r)
		case !strings.HasPrefix(r.URL.Path, uiPath):
			http.Redirect(w, r, uiPath, http.StatusFound)
		default:
			pages.ServeHTTP(w, r)
		}
	}), nil
}

// askToLogIn refuses a request for a page, and makes the browser ask the person for the token.
func askToLogIn(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="lockd: any name, the token as the password"`)
	turnAwayAs(w, http.StatusUnauthorized, "Permission denied: log in with any name, and the "+
		"token as the password")
}
