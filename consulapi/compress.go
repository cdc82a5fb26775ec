package consulapi

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// leastCompressed is the length of a body from which on it is compressed: a shorter one is in one
// packet anyway.
const leastCompressed = 1400

// compress makes the body of the answer shorter, if the client takes gzip and it does get shorter
// (H20). A client on this machine would wait for twice as long, and no wire is spared. Whatever it
// does, the answer then says that it depends on what the client takes.
func (h *handler) compress(a *answer, r *http.Request, header http.Header) {
	header.Add("Vary", "Accept-Encoding")
	if len(a.body) < leastCompressed || !takesGzip(r.Header) || !isRemote(r.RemoteAddr) {
		return
	}
	z, _ := h.compressors.Get().(*gzip.Writer)
	if z == nil {
		z, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // which is a level that there is
	}
	defer h.compressors.Put(z)
	var body bytes.Buffer
	z.Reset(&body)
	_, _ = z.Write(a.body) // a buffer takes everything
	_ = z.Close()
	if body.Len() < len(a.body) {
		a.body = body.Bytes()
		header.Set("Content-Encoding", "gzip")
	}
}

// takesGzip reports whether the client names gzip among the encodings that it takes.
func takesGzip(header http.Header) bool {
	for _, line := range header["Accept-Encoding"] {
		for encoding := range strings.SplitSeq(line, ",") {
			name, weight, weighted := strings.Cut(encoding, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			return !weighted || isPositive(weight)
		}
	}
	return false
}

// isPositive reports whether a weight, as in "q=0.5", is above 0.
func isPositive(weight string) bool {
	name, value, _ := strings.Cut(strings.TrimSpace(weight), "=")
	q, err := strconv.ParseFloat(value, 64)
	return err == nil && strings.EqualFold(name, "q") && q > 0
}

// isRemote reports whether an address, as in http.Request.RemoteAddr, is of another machine. That
// of a socket in the file system is none.
func isRemote(address string) bool {
	from, err := netip.ParseAddrPort(address)
	return err == nil && !from.Addr().Unmap().IsLoopback()
}
