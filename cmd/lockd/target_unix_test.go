//go:build unix

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// Ensure that a signal ends the writing of a backup, and that no part of the backup is left beside
// the one that was to be replaced.
func TestBackup_Signals(t *testing.T) {
	t.Parallel()
	path, to := fileWith(t, "value"), filepath.Join(t.TempDir(), "backup")
	write(t, to, []byte(command(t, "", "backup", path).out))
	was := read(t, to)
	open(t, path)
	id, err := fileID(path)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(lockclient.FileHeader, id)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		asked <- struct{}{}
		<-r.Context().Done() // it never ends
	}))
	defer s.Close()
	for _, one := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		// A signal that is caught here is not ignored by the command, even if it was ignored by the
		// test at first, as under nohup.
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, one)
		p := start(t, nil, "backup", "--wait", "0s", "--http-addr", s.URL, path, to)
		signal.Stop(caught)
		<-asked
		p.signal(one)
		p.endsBy(one)
		if got := names(t, filepath.Dir(to)); len(got) != 1 || string(read(t, to)) != string(was) {
			t.Errorf("%v: left in the folder: %q", one, got)
		}
	}
}
