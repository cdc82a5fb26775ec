package file

import (
	"fmt"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
)

// formatVersion is the version of the format.
const formatVersion = 1

// headerKey is the key of the header in its bucket. It also tells a file of this package from any
// other bbolt file.
const headerKey = "lockd"

// lastLimit is above every last index of a file or a backup. No writer gets there; the limit keeps
// a crafted file or backup from making the indexes wrap around.
const lastLimit = 1 << 63

// header is the row that every commit of bbolt's writes anew. Newer records in the log replace what
// it says.
//
// Its place, its checksum and its first field are the same in every format: an older program
// must be able to tell a newer format from damage.
type header struct {
	version uint64
	commit  uint64       // bbolt's number of the commit that wrote it: see headerOf
	index   uint64       // of the last transaction that the file has
	tally   format.Tally // of all other rows, those of the log in their places

	log logState // zero if the file has no log
}

// logState is what a header says of the log.
type logState struct {
	made  uint64       // the number of bbolt's last commit that made a segment
	first uint64       // the number of the first record that counts
	next  uint64       // the number of the first record after the header
	taken format.Write // the last row of the first segment that is in its table
}

var headerRows = format.Rows[header]{
	Table: format.HeaderTable,
	AppendPayload: func(buf []byte, row *header) []byte {
		buf = format.AppendUint64(buf, row.version, row.commit, row.index, row.tally.Rows,
			row.tally.Sum, row.log.made, row.log.first, row.log.next)
		return format.AppendString(append(buf, row.log.taken.Table), row.log.taken.Key)
	},
	DecodePayload: func(_ string, payload []byte) (header, error) {
		d := format.Decoder{Rest: payload}
		row := header{version: d.Uint64()}
		if d.Err == nil && row.version != formatVersion {
			return row, nil // what follows is for those who know that version
		}
		row.commit = d.Uint64()
		row.index = d.Uint64()
		row.tally = format.Tally{Rows: d.Uint64(), Sum: d.Uint64()}
		row.log = logState{made: d.Uint64(), first: d.Uint64(), next: d.Uint64()}
		row.log.taken = format.Write{Table: d.Uint8(), Key: d.String()}
		return row, d.End()
	},
}

// writeHeader writes the header of this commit, whose number it has, in the format of this package.
func writeHeader(tx *bbolt.Tx, row header) error {
	bucket := tx.Bucket([]byte(format.HeaderBucket))
	if bucket == nil {
		return corrupt("it has no bucket %s", format.HeaderBucket)
	}
	row.version = formatVersion
	return bucket.Put([]byte(headerKey), headerRows.Append(nil, headerKey, &row))
}

// headerOf decodes value, the header that bbolt's commit of that number wrote; a nil value means
// that there is no header. It returns [ErrFormat] if the file is not of this package's format.
func headerOf(value []byte, commit uint64) (header, error) {
	if value == nil {
		return header{}, fmt.Errorf("%w: it is a bbolt file of another program; "+
			"choose another path", ErrFormat)
	}
	row, err := headerRows.Decode(headerKey, value)
	switch {
	case err != nil:
		return header{}, err
	case row.version != formatVersion:
		return header{}, errVersion(row.version)
	case row.commit != commit:
		return header{}, corrupt("its header is of commit %d, and its last one is %d", row.commit,
			commit)
	case row.index < schema.FirstIndex, row.index >= lastLimit:
		return header{}, errLastIndex(row.index)
	case row.log.first > row.log.next, row.log.next >= lastLimit,
		(row.log.made == 0) != (row.log.first == 0):
		return header{}, corrupt("its log is from record %d to before %d", row.log.first,
			row.log.next)
	}
	return row, nil
}

func errVersion(version uint64) error {
	return fmt.Errorf("%w: it has version %d, this program knows version %d; use the program that "+
		"wrote it, or a newer one", ErrFormat, version, formatVersion)
}

func errLastIndex(index uint64) error {
	return corrupt("its last index is %d, not from %d to %d", index, schema.FirstIndex,
		uint64(lastLimit-1))
}
