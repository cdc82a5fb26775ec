package store

import "fmt"

// The tables, by the number that is in the checksum of each of their rows. A number is never
// given to another table.
const (
	tableKeys byte = iota
	tableSessions
	tableNodes
	tableServices
	tableChecks
	tableAttachments
	tableDelays
	tableGraves
	tableMarks
	tableCount
)

// The numbers that are in other checksums, in place of a table's.
const (
	cleanTable  byte = 0xfd + iota // of what a clean close leaves
	logTable                       // of a sector of the log
	headerTable                    // of the header
)

// headerBucket is the bucket of the header.
const headerBucket = "meta"

// tableName is the name of the table's bucket.
func tableName(table byte) string {
	switch table {
	case tableKeys:
		return "keys"
	case tableSessions:
		return "sessions"
	case tableNodes:
		return "nodes"
	case tableServices:
		return "services"
	case tableChecks:
		return "checks"
	case tableAttachments:
		return "attachments"
	case tableDelays:
		return "delays"
	case tableGraves:
		return "graves"
	case tableMarks:
		return "marks"
	case headerTable:
		return headerBucket
	}
	panic(fmt.Sprintf("store: bug: no table has the number %d", table))
}
