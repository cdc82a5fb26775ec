package lockdui

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/lockd/lockd"
)

// The token of a form is a hash, keyed with the handler's secret, of a random cookie. SameSite
// keeps the browser from sending the cookie with another site's form, and no other site can read
// it. So a form that another site has made up is refused, even if the browser names no origin.

const (
	cookieName  = "lockdui"
	cookieBytes = 16
	maxForm     = 128 << 10 // bytes: an escaped key, and a reason
)

// action does what a form asks for, tells the log, and returns the address of the page to show
// afterwards.
type action func(db *lockd.DB, log *slog.Logger, form url.Values) (to string, err error)

// actions has the actions by the last part of their paths.
var actions = map[string]action{"force-unlock": forceUnlock, "end-session": endSession}

// act answers a form.
func (h *handler) act(w http.ResponseWriter, r *http.Request, do action) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "method "+r.Method+" not allowed", http.StatusMethodNotAllowed)
		return
	}
	if h.opts.Actions == ShowOnly {
		http.Error(w, "Permission denied: the pages only show, since lockdui.Options.Actions "+
			"allows no action", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	known := h.knownToken(r)
	if known == "" || !hmac.Equal([]byte(known), []byte(r.PostForm.Get("token"))) {
		http.Error(w, "Permission denied: the form is not of this page, or is older than the "+
			"server: load the page again", http.StatusForbidden)
		return
	}
	log := h.opts.Logger.With("from", r.RemoteAddr)
	to, err := do(h.db, log, r.PostForm)
	if err != nil {
		log.Warn("lockdui: action refused", "cause", err)
		status := http.StatusBadRequest
		if errors.Is(err, lockd.ErrNotHeld) || errors.Is(err, lockd.ErrNoSession) {
			status = http.StatusConflict // the grant or the session has ended already
		}
		h.answer(w, r, status, problem{"Nothing was changed", printed(err.Error())})
		return
	}
	w.Header().Set("Location", to) // relative: the handler does not know where it is mounted
	w.WriteHeader(http.StatusSeeOther)
}

// forceUnlock ends the grant of a lock that the page has shown.
func forceUnlock(db *lockd.DB, log *slog.Logger, form url.Values) (string, error) {
	key, err := url.QueryUnescape(form.Get("key")) // a form field cannot hold every byte
	if err != nil {
		return "", err
	}
	fence, err := strconv.ParseUint(form.Get("fence"), 10, 64)
	if err != nil {
		return "", err
	}
	reason := form.Get("reason")
	if strings.TrimSpace(reason) == "" { // DB.ForceUnlock takes an empty reason, the page does not
		return "", errors.New("the reason is empty: give one, for its owner and the log")
	}
	if err := db.ForceUnlock(key, fence, reason); err != nil {
		return "", err
	}
	log.Warn("lockdui: lock taken away", "key", key, "fence", fence, "reason", reason)
	return keyHref(key), nil
}

// endSession ends a session.
func endSession(db *lockd.DB, log *slog.Logger, form url.Values) (string, error) {
	id, err := lockd.ParseSessionID(form.Get("session"))
	if err != nil {
		return "", err
	}
	if err := db.EndSession(id); err != nil {
		return "", err
	}
	log.Warn("lockdui: session ended", "session", id)
	return "sessions?id=" + id.String(), nil
}

// formToken returns the token of the forms of a page, and gives the browser a cookie if it has
// none. The token is empty if no actions are allowed.
func (h *handler) formToken(w http.ResponseWriter, r *http.Request) string {
	if h.opts.Actions == ShowOnly {
		return ""
	}
	if known := h.knownToken(r); known != "" {
		return known
	}
	var value [cookieBytes]byte
	_, _ = rand.Read(value[:]) // never fails
	cookie := &http.Cookie{
		Name: cookieName, Value: hex.EncodeToString(value[:]), HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	} // a cookie without a path is for the folder of the page, wherever the handler is mounted
	http.SetCookie(w, cookie)
	return h.tokenOf(cookie.Value)
}

// knownToken returns the token that belongs to the cookie of the request; empty if the request has
// no valid cookie, or if no actions are allowed.
func (h *handler) knownToken(r *http.Request) string {
	if h.opts.Actions == ShowOnly {
		return ""
	}
	cookie, err := r.Cookie(cookieName)
	if err != nil || len(cookie.Value) != hex.EncodedLen(cookieBytes) {
		return ""
	}
	return h.tokenOf(cookie.Value)
}

func (h *handler) tokenOf(cookie string) string {
	mac := hmac.New(sha256.New, h.secret[:])
	mac.Write([]byte(cookie))
	return hex.EncodeToString(mac.Sum(nil))
}
