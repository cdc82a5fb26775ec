package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"unicode"
)

// secret is the token that requests have to bear, and the log of the requests that do not bear it.
// Its methods may be called by many goroutines.
type secret struct {
	file     string // that has the token; empty: it was given in another way
	inForce  atomic.Pointer[credential]
	logger   *slog.Logger
	counted  func() // called for each refusal
	refusals refusals
}

// credential is one token, for as long as it is the one that requests have to bear.
type credential struct {
	hash [sha256.Size]byte
	ctx  context.Context // ends when another token takes its place
	end  context.CancelFunc
}

func newSecret(token, file string, logger *slog.Logger, counted func()) *secret {
	s := &secret{file: file, logger: logger, counted: counted}
	s.set(token)
	return s
}

// set puts a token in force. If it is another than before, the requests that bear the one before
// end.
func (s *secret) set(token string) {
	c := &credential{hash: sha256.Sum256([]byte(token))}
	if before := s.inForce.Load(); before != nil && before.hash == c.hash {
		return
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	if before := s.inForce.Swap(c); before != nil {
		before.end()
	}
}

// reload reads the token from its file again. If that fails, the token stays as it was. A pipe is
// refused: the server would wait until another process writes to it, and take no signal meanwhile.
func (s *secret) reload() error {
	if s.file == "" {
		return errors.New("there is no --token-file")
	}
	info, err := os.Stat(s.file)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("token file %s is not a regular file", s.file)
	}
	token, err := readToken(s.file)
	if err == nil {
		s.set(token)
	}
	return err
}

// allows reports whether the request bears the token. How long a refusal takes says nothing about
// the token.
func (c *credential) allows(r *http.Request) bool {
	scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	given := sha256.Sum256([]byte(r.Header.Get("X-Consul-Token")))
	other := sha256.Sum256([]byte(bearer))
	allowed := subtle.ConstantTimeCompare(given[:], c.hash[:])
	if strings.EqualFold(scheme, "Bearer") {
		allowed |= subtle.ConstantTimeCompare(other[:], c.hash[:])
	}
	return allowed == 1
}

// allowsLogin reports whether the request bears the token as the password of a login.
func (c *credential) allowsLogin(r *http.Request) bool {
	_, password, _ := r.BasicAuth()
	given := sha256.Sum256([]byte(password))
	return subtle.ConstantTimeCompare(given[:], c.hash[:]) == 1
}

// bound returns the request with a context that also ends when another token takes the place of
// this one. The caller calls release when the request is done.
func (c *credential) bound(r *http.Request) (bound *http.Request, release func()) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(c.ctx, cancel)
	return r.WithContext(ctx), func() { stop(); cancel() }
}

// note counts a request that is refused, and logs it if that is due.
func (s *secret) note(r *http.Request) {
	s.counted()
	if count := s.refusals.due(); count > 0 {
		s.logger.Warn("requests refused: no token, or a wrong one", "count", count,
			"last_from", r.RemoteAddr)
	}
}

// maxTokenFile is how many bytes a token file may have: no server takes a header of more.
const maxTokenFile = 64 << 10

// readToken reads a token from a file.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1)) // a device may have no end
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	if len(content) > maxTokenFile {
		return "", fmt.Errorf("token file %s has more than %d bytes", path, maxTokenFile)
	}
	text, err := parseToken(string(content))
	if err != nil {
		return "", fmt.Errorf("token file %s %w", path, err)
	}
	return text, nil
}

// parseToken returns the token in a text, without the white space around it, which a header loses,
// and without the byte-order mark that an editor may have put before it. It refuses a token that no
// header can have, since no request could bear it.
func parseToken(text string) (string, error) {
	text = strings.TrimSpace(strings.TrimPrefix(text, "\ufeff"))
	switch {
	case text == "":
		return "", errors.New("is empty")
	case strings.ContainsFunc(text, unicode.IsControl):
		return "", errors.New("has more than one line, or a control character")
	}
	return text, nil
}
