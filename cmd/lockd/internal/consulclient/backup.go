package consulclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// FileHeader is the header in which lockd serve says which file it has open.
const FileHeader = "X-Lockd-File"

// ErrOtherFile is returned when a server does not have the file open that is asked for.
var ErrOtherFile = errors.New("it does not have this file open")

// Backup writes a backup of the database of a server, if its file is the one with the ID, which the
// server says in the same answer. It blocks until all of it is written. It returns ErrOtherFile if
// that is another file, or the server is not lockd, with nothing written; after any other error a
// part may be.
func (c *Client) Backup(ctx context.Context, file string, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A backup may take its time, as long as something comes.
	stalled := time.AfterFunc(patience, func() {
		cancel(fmt.Errorf("the server has sent nothing for %v", patience))
	})
	defer stalled.Stop()
	r := request{method: http.MethodGet, path: "v1/lockd/backup"}
	response, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode == http.StatusNotFound:
		return fmt.Errorf("server at %s: %w", c.name, ErrOtherFile)
	case response.StatusCode != http.StatusOK:
		body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		return errors.Join(
			&Error{r.method, "/" + r.path, response.StatusCode, string(body)}, err)
	case file == "" || response.Header.Get(FileHeader) != file:
		return fmt.Errorf("server at %s: %w", c.name, ErrOtherFile)
	}
	_, err = io.Copy(w, &lively{response.Body, stalled})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = errors.Join(err, cause)
	}
	return err
}

// lively is a body whose timer runs only while it is read from.
type lively struct {
	io.Reader
	stalled *time.Timer
}

// Read reads, and has the timer begin anew.
func (l *lively) Read(p []byte) (int, error) {
	l.stalled.Reset(patience)
	defer l.stalled.Stop()
	return l.Reader.Read(p)
}
