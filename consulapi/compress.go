package consulapi

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// leastCompressed is the length of the shortest body that is compressed: a shorter one fits in one
// packet anyway.
const leastCompressed = 1400

// compressor compresses bodies with gzip. The zero value is ready to use.
type compressor struct {
	writers sync.Pool // of *flate.Writer, each of which is large
}

// compress compresses the body of the answer, if the client takes gzip and the body gets shorter
// (H20). For a long body the first piece decides; JSON that is a stream is always compressed. A
// client on this machine gets the body as it is: compression would double its wait and spare no
// network. In every case the header Vary says that the answer depends on what the client takes.
func (c *compressor) compress(a *answer, r *http.Request, header http.Header) {
	header.Add("Vary", "Accept-Encoding")
	if !takesGzip(r.Header) || !isRemote(r.RemoteAddr) {
		return
	}
	stream := a.stream
	if stream != nil && a.value == nil { // a snapshot or a backup
		return
	}
	if stream == nil {
		var small bytes.Buffer
		body := a.body
		if !c.shrinks(body[:min(len(body), pieceSize)], &small) {
			return
		}
		if len(body) > pieceSize {
			stream = func(w io.Writer) error {
				_, err := w.Write(body)
				return err
			}
		}
		a.body = small.Bytes()
	}
	if stream != nil {
		a.stream = func(w io.Writer) error { return c.zip(w, stream) }
	}
	header.Set("Content-Encoding", "gzip")
}

// shrinks compresses the body into small, unless it is short, and reports whether that pays.
func (c *compressor) shrinks(body []byte, small *bytes.Buffer) bool {
	if len(body) < leastCompressed {
		return false
	}
	_ = c.zip(small, func(w io.Writer) error { // a buffer takes everything
		_, err := w.Write(body)
		return err
	})
	return small.Len() < len(body)
}

// zip writes what the stream writes to w, compressed.
func (c *compressor) zip(w io.Writer, stream func(w io.Writer) error) error {
	z := &zipper{w: w, writers: &c.writers}
	z.piece.WriteString(gzipHeader)
	if err := stream(z); err != nil {
		return err
	}
	return z.end()
}

// gzipHeader begins a gzip stream: no name, no time, best speed, unknown system.
const gzipHeader = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"

// zipper compresses in pieces. It has a flate.Writer only while it compresses a piece, and none
// while it waits for a client to take the piece: a flate.Writer is larger than all else that a
// connection needs. No piece refers to the piece before.
type zipper struct {
	w       io.Writer
	writers *sync.Pool // of *flate.Writer

	piece bytes.Buffer
	sum   uint32
	size  uint32 // modulo 1<<32
}

// Write compresses p and writes it.
func (z *zipper) Write(p []byte) (int, error) {
	for part := range slices.Chunk(p, pieceSize) {
		z.sum = crc32.Update(z.sum, crc32.IEEETable, part)
		z.size += uint32(len(part))
		if err := z.send(part, (*flate.Writer).Flush); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// end ends the stream with its checksum and size, which tell that nothing is missing.
func (z *zipper) end() error {
	return z.send(nil, func(c *flate.Writer) error {
		err := c.Close()
		z.piece.Write(binary.LittleEndian.AppendUint32(nil, z.sum))
		z.piece.Write(binary.LittleEndian.AppendUint32(nil, z.size))
		return err
	})
}

// send compresses a part, completes the piece with finish, and writes it.
func (z *zipper) send(part []byte, finish func(*flate.Writer) error) error {
	c, _ := z.writers.Get().(*flate.Writer)
	if c == nil {
		c, _ = flate.NewWriter(nil, flate.BestSpeed) // the level is valid
	}
	c.Reset(&z.piece)
	_, _ = c.Write(part) // a buffer takes everything
	_ = finish(c)
	z.writers.Put(c)
	_, err := z.w.Write(z.piece.Bytes())
	z.piece.Reset()
	return err
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
	q, _ := strconv.ParseFloat(value, 64) // 0 if it is not a number
	return strings.EqualFold(name, "q") && q > 0
}

// isRemote reports whether an address, as in http.Request.RemoteAddr, is of another machine. The
// address of a socket in the file system is not.
func isRemote(address string) bool {
	from, err := netip.ParseAddrPort(address)
	return err == nil && !from.Addr().Unmap().IsLoopback()
}
