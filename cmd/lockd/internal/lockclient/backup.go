package lockclient

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"slices"
)

// FileHeader is the header in which lockd serve says which file it has open.
const FileHeader = "X-Lockd-File"

// ErrOtherFile is returned when a server does not have the file open that is asked for.
var ErrOtherFile = errors.New("it does not have this file open")

// Backup writes a backup of the database of a server, if the server has the file with that ID open,
// which it says in the same answer. Backup blocks until the whole backup is written. It returns
// ErrOtherFile, with nothing written, if the server has another file open or is not lockd; and
// io.ErrUnexpectedEOF if what it has written is not a whole backup. After any error but
// ErrOtherFile a part may be written.
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
	seal := &seal{sum: sha256.New()}
	_, err = io.Copy(io.MultiWriter(w, seal), response.Body)
	if err == nil && !seal.holds() {
		return fmt.Errorf("read the answer of %s: %w", c.name, io.ErrUnexpectedEOF)
	}
	return err
}

// seal finds the end of a backup that is written to it: the SHA-256 of all that is before. HTTP
// alone does not tell that an answer is cut off if its end is the end of the connection.
type seal struct {
	sum  hash.Hash
	last []byte // not summed: it may be the end
}

// Write sums all but what may be the end.
func (s *seal) Write(p []byte) (int, error) {
	s.last = append(s.last, p...)
	if n := len(s.last) - s.sum.Size(); n > 0 {
		s.sum.Write(s.last[:n]) // never fails
		s.last = slices.Delete(s.last, 0, n)
	}
	return len(p), nil
}

// holds reports whether what was written is whole.
func (s *seal) holds() bool { return bytes.Equal(s.sum.Sum(nil), s.last) }
