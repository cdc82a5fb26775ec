package format

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
	// TableCount is how many tables there are: their numbers are below it.
	TableCount
)

// The numbers that are in other checksums, in place of a table's.
const (
	// CleanTable is the number of what a clean close leaves.
	CleanTable byte = 0xfd + iota
	// LogTable is the number of a sector of the log.
	LogTable
	// HeaderTable is the number of the header.
	HeaderTable
)

// HeaderBucket is the bucket of the header.
const HeaderBucket = "meta"

var tableNames = [TableCount]string{
	tableKeys:        "keys",
	tableSessions:    "sessions",
	tableNodes:       "nodes",
	tableServices:    "services",
	tableChecks:      "checks",
	tableAttachments: "attachments",
	tableDelays:      "delays",
	tableGraves:      "graves",
	tableMarks:       "marks",
	tableShares:      "shares",
}

// TableName is the name of the table's bucket.
func TableName(table byte) string {
	if table == HeaderTable {
		return HeaderBucket
	}
	return tableNames[table]
}
