package consulapi_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// A client of Consul's API in process: each host name leads to the database. Consul's official
// client takes the http.Client as the HttpClient of its Config.
func ExampleTransport() {
	db, err := lockd.New(nil)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	transport, err := consulapi.Transport(db, nil)
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}

	read := func(response *http.Response, err error) {
		if err != nil {
			panic(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		fmt.Printf("%s %v\n", body, err)
	}
	const url = "http://localhost:8500/v1/kv/config/color"
	put, err := http.NewRequest(http.MethodPut, url, strings.NewReader("red"))
	if err != nil {
		panic(err)
	}
	read(client.Do(put))
	read(client.Get(url + "?raw"))
	entry, _ := db.Get("config/color")
	fmt.Printf("%s\n", entry.Value)
	// Output:
	// true <nil>
	// red <nil>
	// red
}
