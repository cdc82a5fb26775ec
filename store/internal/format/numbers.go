package format

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
	tableShares
	tableCount
)

// TableCount is how many tables there are: their numbers are below it.
const TableCount = tableCount

// The numbers that are in other checksums, in place of a table's.
const (
	// CleanTable is that of what a clean close leaves.
	CleanTable byte = 0xfd + iota
	// LogTable is that of a sector of the log.
	LogTable
	// HeaderTable is that of the header.
	HeaderTable
)

// HeaderBucket is the bucket of the header.
const HeaderBucket = "meta"

// TableName is the name of the table's bucket.
func TableName(table byte) string {
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
	case tableShares:
		return "shares"
	case HeaderTable:
		return HeaderBucket
	}
	panic(fmt.Sprintf("store: bug: no table has the number %d", table))
}
