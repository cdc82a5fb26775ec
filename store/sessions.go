package store

import "encoding/binary"

// Sessions lie in the file in the order in which they were made: those that are made in one commit
// are neighbours there, and as a rule those that end in one are. By their IDs, which are random,
// each would be on a page of its own, which a commit would have to write for it.

func sessionByIndex(id string, row *Session) string {
	place := binary.BigEndian.AppendUint64(make([]byte, 0, indexSize+len(id)), row.CreateIndex)
	return string(append(place, id...))
}

func sessionIDAt(place string) string {
	if len(place) == indexSize+len(ID{}) {
		return place[indexSize:]
	}
	return place
}
