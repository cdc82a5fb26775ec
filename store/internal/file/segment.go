package file

import (
	"encoding/binary"
	"fmt"

	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
)

// A segment is a row of bbolt's that is written once, with empty sectors, and then overwritten in
// place, a record at a time, without bbolt: bbolt moves no page of a bucket that is not written to.
// A record is a run of whole sectors, so that no acknowledged record is ever overwritten while it
// counts, except with its own content.
//
// A disk writes a sector whole or not at all. Each sector has a checksum, which covers its place.
// So every sector of a segment is as it was written there at some time, or the file is damaged. A
// record of which only some sectors are there was cut off by a crash.
//
// The records go to two lanes in turn, which share no page. So if the disk loses the last write to
// a page, there is a newer record in the other lane, unless the newest record is the lost one.
const (
	sectorSize = 512
	sectorHead = 16 // checksum, 4 bytes; what is left of the record, 4; its number, 8
	sectorRoom = sectorSize - sectorHead
	lanes      = 2
	segments   = 2

	segmentKey    = "log"
	segmentPrefix = headSize + elementSize + len(segmentKey) // bytes before the value on its page
)

// segmentName is the name of the segment's bucket.
func segmentName(number byte) []byte { return fmt.Appendf(nil, "log%d", number) }

// segment says where a segment is in the file, and what has been written to it.
type segment struct {
	number byte   // 0 or 1
	start  int64  // where in the file its first page is
	stride int    // sectors from the start of one lane to that of the next, a multiple of a page
	first  uint64 // the number of its first record; 0: it has no record that counts
	used   [lanes]int
}

// length is how many bytes the value of the row has. The first sector of the segment has what
// precedes the value. The last sector is left out, since bbolt takes one page more than it needs if
// the last page is full.
func (s *segment) length() int { return (lanes*s.stride-1)*sectorSize - segmentPrefix }

// room is how many sectors a lane has.
func (s *segment) room() int { return s.stride - 1 }

// place returns the place of a lane's sector, counted from the start of the segment's first page.
func (s *segment) place(lane, sector int) int {
	if lane == 0 {
		return 1 + sector // the first one has the page's head
	}
	return lane*s.stride + sector
}

// offset is where in the file a place is.
func (s *segment) offset(place int) int64 { return s.start + int64(place)*sectorSize }

// small reports whether the segment is small beside one of that many bytes, so that making it anew
// is worth the pages.
func (s *segment) small(size int) bool { return 2*lanes*s.stride*sectorSize <= size }

// fill is how many sectors of the fuller lane are used.
func (s *segment) fill() int { return max(s.used[0], s.used[1]) }

// reset forgets what the segment has: the next record is its first.
func (s *segment) reset() { s.first, s.used = 0, [lanes]int{} }

// create makes the bucket anew, with empty sectors.
func (s *segment) create(tx *bbolt.Tx) error {
	name := segmentName(s.number)
	if tx.Bucket(name) != nil {
		if err := tx.DeleteBucket(name); err != nil {
			return err
		}
	}
	bucket, err := tx.CreateBucket(name)
	if err != nil {
		return err
	}
	value := make([]byte, sectorSize-segmentPrefix, s.length())
	return bucket.Put([]byte(segmentKey), s.blank(value, 1, lanes*s.stride-2))
}

// appendSector appends a sector for that place, with as much of the payload as it has room for.
func (s *segment) appendSector(buf []byte, place int, number uint64, payload []byte) []byte {
	start := len(buf)
	buf = append(buf, 0, 0, 0, 0)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(payload)))
	buf = binary.BigEndian.AppendUint64(buf, number)
	buf = append(buf, payload[:min(len(payload), sectorRoom)]...)
	buf = append(buf, make([]byte, start+sectorSize-len(buf))...)
	sector := buf[start:]
	binary.BigEndian.PutUint32(sector, s.checksum(place, sector))
	return buf
}

func (s *segment) checksum(place int, sector []byte) uint32 {
	key := [5]byte{s.number}
	binary.BigEndian.PutUint32(key[1:], uint32(place))
	return format.Checksum(format.LogTable, key[:], sector[format.ChecksumSize:])
}

// sectorsFor is how many sectors a payload takes.
func sectorsFor(size int) int { return (size + sectorRoom - 1) / sectorRoom }

// frame returns the sectors of a record that begins at that place.
func (s *segment) frame(buf []byte, place int, number uint64, payload []byte) []byte {
	for len(payload) > 0 {
		buf = s.appendSector(buf, place, number, payload)
		payload = payload[min(len(payload), sectorRoom):]
		place++
	}
	return buf
}

// blank appends that number of empty sectors, from that place on.
func (s *segment) blank(buf []byte, place, sectors int) []byte {
	for i := range sectors {
		buf = s.appendSector(buf, place+i, 0, nil)
	}
	return buf
}

func errSector(place int, segment byte) error {
	return corrupt("sector %d of segment %d of its log: the checksum of a sector does not match",
		place, segment)
}

// segmentOf returns the segment of a bucket with that root, from a leaf of it, which has to be the
// root.
func segmentOf(number byte, root uint64, pageSize int, content []byte) (*segment, error) {
	damaged := corrupt("segment %d of its log: it is not one", number)
	if elementCount(content) != 1 || root == 0 || pageNumber(content) != root {
		return nil, damaged
	}
	e := elementAt(content, 0)
	sectors := (len(e.value) + segmentPrefix + sectorSize) / sectorSize
	s := &segment{number: number, start: int64(root) * int64(pageSize), stride: sectors / lanes}
	if string(e.key) != segmentKey || e.flags == bucketFlag ||
		s.stride%(pageSize/sectorSize) != 0 || s.length() != len(e.value) {
		return nil, damaged
	}
	return s, nil
}

// sector is what a sector says. The zero value is a sector whose checksum does not match.
type sector struct {
	number uint64 // of its record; 0: it is empty
	left   uint32 // bytes of the record's payload from here on
	sound  bool   // the checksum matches
}

// sectors returns how many sectors the record takes from this one on, by what the sector says,
// which may be false. It counts in uint64, because an int of 32 bits may be too small for the
// bytes.
func (s sector) sectors() int { return int((uint64(s.left) + sectorRoom - 1) / sectorRoom) }

// readSector returns what the sector at that place says.
func (s *segment) readSector(place int, raw []byte) sector {
	if binary.BigEndian.Uint32(raw) != s.checksum(place, raw) {
		return sector{}
	}
	return sector{
		left:   binary.BigEndian.Uint32(raw[4:]),
		number: binary.BigEndian.Uint64(raw[8:]),
		sound:  true,
	}
}
