package conformance_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// readmeTransport has the five lines of README.md.
func readmeTransport(use func(*api.Client)) {
	db := must(lockd.New(nil))
	defer db.Close()
	config := api.DefaultConfig()
	config.HttpClient = &http.Client{Transport: must(consulapi.Transport(db, nil))}
	client := must(api.NewClient(config))
	use(client)
}

// readmeCluster has the lines of readmeTransport without the one.
func readmeCluster(use func(*api.Client)) {
	db := must(lockd.New(nil))
	defer db.Close()
	config := api.DefaultConfig()
	client := must(api.NewClient(config))
	use(client)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// One line decides whether a program runs in process, or on the cluster that its environment
// names. Here that is a server on loopback.
func TestREADME_OneLineMovesAProgramToACluster(t *testing.T) {
	h := overLoopback(t, short)
	t.Setenv("CONSUL_HTTP_ADDR", h.server.URL)
	program := func(client *api.Client) {
		lock := must(client.LockOpts(&api.LockOptions{Key: "l", Value: []byte("here")}))
		if must(lock.Lock(nil)) == nil {
			t.Fatal("not locked")
		}
		pair, _, err := client.KV().Get("l", nil)
		check(t, err)
		equal(h, "value", string(pair.Value), "here")
		check(t, lock.Unlock())
	}
	readmeTransport(program)
	h.missing("l")
	readmeCluster(program)
	equal(h, "value", string(h.get("l").Value), "here")
}

// The lines above are lines of README.md.
func TestREADME_HasTheseLines(t *testing.T) {
	source, err := os.ReadFile("readme_test.go")
	check(t, err)
	readme, err := os.ReadFile("../README.md")
	check(t, err)
	body := func(name string) []string {
		_, rest, _ := strings.Cut(string(source), "func "+name+"(use func(*api.Client)) {\n")
		lines, _, ok := strings.Cut(rest, "\tuse(client)\n")
		if !ok {
			t.Fatalf("%s is not there", name)
		}
		return strings.SplitAfter(strings.ReplaceAll("\n"+lines, "\n\t", "\n")[1:], "\n")
	}
	five := body("readmeTransport")
	if !strings.Contains(string(readme), "```go\n"+strings.Join(five, "")+"```\n") {
		t.Errorf("README.md has not these lines:\n%s", strings.Join(five, ""))
	}
	four := slices.DeleteFunc(slices.Clone(five), func(line string) bool {
		return strings.Contains(line, "config.HttpClient")
	})
	if len(four) != len(five)-1 || !slices.Equal(four, body("readmeCluster")) {
		t.Errorf("without the one, these are not the lines:\n%s", strings.Join(four, ""))
	}
}
