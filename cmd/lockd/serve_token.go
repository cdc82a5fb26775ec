package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
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
	hash     atomic.Pointer[[sha256.Size]byte]
	logger   *slog.Logger
	counted  func() // called for each refusal
	refusals refusals
}

func newSecret(token, file string, logger *slog.Logger, counted func()) *secret {
	s := &secret{file: file, logger: logger, counted: counted}
	s.set(token)
	return s
}

func (s *secret) set(token string) {
	hash := sha256.Sum256([]byte(token))
	s.hash.Store(&hash)
}

// reload reads the token from its file again. If that fails, the token stays as it was.
func (s *secret) reload() error {
	if s.file == "" {
		return errors.New("there is no --token-file")
	}
	token, err := readToken(s.file)
	if err == nil {
		s.set(token)
	}
	return err
}

// allows reports whether the request bears the token. How long a refusal takes says nothing about
// the token.
func (s *secret) allows(r *http.Request) bool {
	want := s.hash.Load()
	scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	given := sha256.Sum256([]byte(r.Header.Get("X-Consul-Token")))
	other := sha256.Sum256([]byte(bearer))
	allowed := subtle.ConstantTimeCompare(given[:], want[:])
	if strings.EqualFold(scheme, "Bearer") {
		allowed |= subtle.ConstantTimeCompare(other[:], want[:])
	}
	return allowed == 1
}

// allowsLogin reports whether the request bears the token as the password of a login.
func (s *secret) allowsLogin(r *http.Request) bool {
	_, password, _ := r.BasicAuth()
	given, want := sha256.Sum256([]byte(password)), s.hash.Load()
	return subtle.ConstantTimeCompare(given[:], want[:]) == 1
}

// note counts a request that is refused, and logs it if that is due.
func (s *secret) note(r *http.Request) {
	s.counted()
	if count := s.refusals.due(); count > 0 {
		s.logger.Warn("requests refused: no token, or a wrong one", "count", count,
			"last_from", r.RemoteAddr)
	}
}

// readToken reads a token from a file.
func readToken(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
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
