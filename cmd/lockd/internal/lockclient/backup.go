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

// Backup writes a backup of the database of a server, if the server has the file with that ID open,
// which it says in the same answer. Backup blocks until the whole backup is written. It returns
// ErrOtherFile, with nothing written, if the server has another file open or is not lockd. After
// any other error a part may be written.
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
