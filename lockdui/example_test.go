package lockdui_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdui"
)

// A program mounts the pages beside its other ones. The program's server asks for a login, or
// listens on loopback only, because the handler asks for no login.
func ExampleHandler() {
	db, err := lockd.New(nil)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	pages, err := lockdui.Handler(db, nil)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/lockd/", pages)
	server := httptest.NewServer(mux)
	defer server.Close()

	session, err := db.NewSession(&lockd.SessionOptions{Name: "db1"})
	if err != nil {
		panic(err)
	}
	if _, err := session.TryLock("service/mysql/leader", nil); err != nil {
		panic(err)
	}
	response, err := http.Get(server.URL + "/debug/lockd/")
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(response.Status, strings.Contains(string(page), "service/mysql/leader"))
	// Output: 200 OK true
}
