package lockclient_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// drip is a server that sends a byte at a time, and then stops: for ever, or with an error.
type drip struct {
	text  string
	pause time.Duration
	err   error // nil: it says nothing more
}

func (d *drip) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: &dripping{*d, r.Context()},
		Header: http.Header{lockclient.FileHeader: {"id"}}}, nil
}

type dripping struct {
	drip
	ctx context.Context
}

func (d *dripping) Read(p []byte) (int, error) {
	switch {
	case d.ctx.Err() != nil:
		return 0, d.ctx.Err()
	case d.text != "":
		time.Sleep(d.pause)
		n := copy(p[:1], d.text)
		d.text = d.text[n:]
		return n, nil
	case d.err != nil:
		return 0, d.err
	}
	<-d.ctx.Done()
	return 0, d.ctx.Err()
}

func (d *dripping) Close() error { return nil }

// wholeBackup returns a backup of 100 bytes.
func wholeBackup() string {
	const begin = "lockd backup of 68 bytes, and then the 32 bytes of their checksum..."
	sum := sha256.Sum256([]byte(begin))
	return begin + string(sum[:])
}

// Ensure that a backup may take long, that a backup that stalls or breaks off is an error, also if
// the answer ends as a whole one does, and that a backup of another file is not written.
func TestClient_Backup(t *testing.T) {
	all := wholeBackup()
	some := all[:5]
	for name, test := range map[string]struct {
		server drip
		file   string
		text   string
		got    int
		took   time.Duration
	}{
		"Whole":     {drip{all, 9 * time.Second, io.EOF}, "id", "", 100, 900 * time.Second},
		"CutOff":    {drip{all[:99], 0, io.EOF}, "id", "unexpected EOF", 99, 0},
		"Stalls":    {drip{some, time.Second, nil}, "id", "nothing for 10s", 5, 15 * time.Second},
		"BreaksOff": {drip{some, 0, io.ErrUnexpectedEOF}, "id", "unexpected EOF", 5, 0},
		"OtherFile": {drip{some, 0, io.EOF}, "other", "does not have this file open", 0, 0},
		"NoID":      {drip{some, 0, io.EOF}, "", "does not have this file open", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := over(t, &test.server)
				var out bytes.Buffer
				began := time.Now()
				err := c.Backup(t.Context(), test.file, &out)
				if (err == nil) != (test.text == "") ||
					err != nil && !strings.Contains(err.Error(), test.text) {
					t.Errorf("got %v, want %q", err, test.text)
				}
				other := strings.Contains(test.text, "file open")
				if errors.Is(err, lockclient.ErrOtherFile) != other {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); out.Len() != test.got || took != test.took {
					t.Errorf("%d bytes after %v", out.Len(), took)
				}
			})
		})
	}
}

// Ensure that a backup is whole also if it is written so slowly that the server is not asked for
// more for a long time.
func TestClient_Backup_SlowWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := over(t, &drip{wholeBackup(), 0, io.EOF})
		if err := c.Backup(t.Context(), "id", slowWriter{}); err != nil {
			t.Error(err)
		}
	})
}

// Ensure that no answer of a server that names no file is a backup of one without an ID.
func TestClient_Backup_NoFileNamed(t *testing.T) {
	var out bytes.Buffer
	c := over(t, &script{status: http.StatusOK, body: wholeBackup()})
	err := c.Backup(t.Context(), "", &out)
	if !errors.Is(err, lockclient.ErrOtherFile) || out.Len() > 0 {
		t.Errorf("got %v, and %d bytes", err, out.Len())
	}
}

type slowWriter struct{}

func (slowWriter) Write(p []byte) (int, error) {
	time.Sleep(time.Minute)
	return len(p), nil
}
