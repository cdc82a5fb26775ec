package lockclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
	response, err := c.send(ctx, http.MethodGet, "/v1/lockd/backup", url.Values{}, nil)
	if refused, ok := errors.AsType[*Error](err); ok && refused.Status == http.StatusNotFound {
		return fmt.Errorf("server at %s: %w", c.name, ErrOtherFile)
	}
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if file == "" || response.Header.Get(FileHeader) != file {
		return fmt.Errorf("server at %s: %w", c.name, ErrOtherFile)
	}
	_, err = io.Copy(w, response.Body)
	return err
}
