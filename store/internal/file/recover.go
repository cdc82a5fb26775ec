package file

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store/internal/format"
)

// Recovered is what Recover has found in a file.
type Recovered struct {
	*Backup

	// Missing is what was in the file, or may have been, and is not among the rows. Doubtful is
	// what is among the rows, but may be older than the last commit, or may have been deleted
	// since. It also names a newest commit that may never have been whole.
	Missing, Doubtful []Remark
}

// Remark is a remark on some rows.
type Remark struct {
	Table string // the table's name; empty: all tables
	Key   string // of one row, as a file has it; empty: it is not known which rows
	Text  string
}

// Recover is store.Recover.
func Recover(path string, o Options) (*Recovered, error) {
	found, err := tryRecover(path, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return found, nil
}

func tryRecover(path string, o Options) (found *Recovered, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, cause(err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: it is not a regular file, its mode is %v", ErrFormat,
			info.Mode())
	case info.Size() == 0:
		return nil, corrupt("it is empty")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, cause(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	unlock, err := lockToRead(path, o, o.Timeout)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if info, err = f.Stat(); err != nil {
		return nil, cause(err)
	}
	// Compact may have put another file there meanwhile. Only one of the two is locked.
	if err := checkPath(path, info); err != nil {
		return nil, err
	}
	s := &salvage{file: f, size: info.Size(), rows: make(map[rowPlace]candidate)}
	return s.run()
}

// rowPlace is where a row belongs.
type rowPlace struct {
	table byte
	key   string
}

// candidate is a row that was found.
type candidate struct {
	value []byte
	index uint64 // of its last change
	doubt string // why it may not be what was committed last; empty: it is
}

// result makes the result of Recover from the candidates.
func (s *salvage) result() (*Recovered, error) {
	r := &Recovered{Backup: &Backup{Index: max(s.index, schema.FirstIndex)}}
	if len(s.rows) == 0 && !s.headed {
		if s.metaErr != nil {
			return nil, s.metaErr
		}
		return nil, corrupt("there is no row of lockd's in it")
	}
	places := slices.Collect(maps.Keys(s.rows))
	slices.SortFunc(places, func(a, b rowPlace) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.key, b.key))
	})
	for _, place := range places {
		row := s.rows[place]
		// The row was decoded before: add refuses only the tables that no backup has.
		if r.add(place.table, place.key, row.value) == nil && row.doubt != "" {
			s.doubt(place.table, place.key, "%s", row.doubt)
		}
	}
	r.Missing, r.Doubtful = s.missing, s.doubtful
	return r, nil
}

// miss and doubt note a remark; allTables stands for every table.
func (s *salvage) miss(table byte, key, text string, args ...any) {
	s.missing = append(s.missing, remark(table, key, text, args))
}

func (s *salvage) doubt(table byte, key, text string, args ...any) {
	s.doubtful = append(s.doubtful, remark(table, key, text, args))
}

func remark(table byte, key, text string, args []any) Remark {
	r := Remark{Key: key, Text: fmt.Sprintf(text, args...)}
	if table != allTables {
		r.Table = format.TableName(table)
	}
	return r
}
