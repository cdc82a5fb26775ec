package lockd_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// askConsul asks for every key that the model has as shared over HTTP: it shows no session, and a
// session that tries to acquire it is refused with the reason, and changes nothing (R10). It is for
// the end of a run, wherever that has come to: the API puts a node of its own into the catalog.
func (w *twin) askConsul() error {
	w.failures.Store(0)
	w.m.failures = 0
	consul, err := consulapi.Transport(w.db, nil)
	if err != nil {
		return err
	}
	if err := w.m.write(func(*modelTx) error { return nil }); err != nil { // ends what is due
		return err
	}
	for _, key := range modelKeys {
		if len(w.m.shares[key]) == 0 {
			continue
		}
		if err := w.askForShared(consul, key); err != nil {
			return fmt.Errorf("%q over HTTP: %w", key, err)
		}
		w.m.counts["shared key over HTTP"]++
	}
	return nil
}

// askForShared asks for one key that is shared, as the last session that lives.
func (w *twin) askForShared(consul http.RoundTripper, key string) error {
	id := w.m.live[len(w.m.live)-1].info.ID
	_, refusal := (&modelTx{m: w.m}).lock(key, id, nil)
	var locked *lockd.LockedError
	if !errors.As(refusal, &locked) {
		return fmt.Errorf("the model refuses it with %v", refusal)
	}
	before := w.db.Snapshot()
	url := "http://consul/v1/kv/" + key
	acquired, err := askOf(consul, http.MethodPut, url+"?acquire="+id.String())
	if err != nil {
		return err
	}
	if acquired.code != http.StatusOK || strings.TrimSpace(acquired.body) != "false" ||
		acquired.header.Get("X-Lockd-Refusal") != locked.Error() {
		return fmt.Errorf("acquired: got %+v, want %v", acquired, refusal)
	}
	after := w.db.Snapshot()
	if after.Index() != before.Index() ||
		!slices.EqualFunc(slices.Collect(after.Holders(key)), w.m.holders(key), sameGrant) {
		return fmt.Errorf("the refused acquire changed something")
	}
	seen, err := askOf(consul, http.MethodGet, url)
	if err != nil {
		return err
	}
	if seen.code != http.StatusOK || strings.Contains(seen.body, `"Session"`) ||
		seen.header.Get("X-Lockd-Fence") != "" {
		return fmt.Errorf("shown: %+v", seen)
	}
	return nil
}

func sameGrant(a, b lockd.Holder) bool { return a.Grant == b.Grant }

// consulAnswer is what a request over HTTP got.
type consulAnswer struct {
	code   int
	body   string
	header http.Header
}

func askOf(consul http.RoundTripper, method, url string) (consulAnswer, error) {
	r, err := http.NewRequest(method, url, http.NoBody)
	if err != nil {
		return consulAnswer{}, err
	}
	answer, err := consul.RoundTrip(r)
	if err != nil {
		return consulAnswer{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return consulAnswer{answer.StatusCode, string(body), answer.Header}, err
}
