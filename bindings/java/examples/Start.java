import dev.esker.Batch;
import dev.esker.Kvdb;
import dev.esker.Kvs;
import dev.esker.Range;
import dev.esker.Row;
import dev.esker.RowIterator;
import dev.esker.Transaction;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/** Stores and reads: java -cp esker-0.1.0.jar Start.java DIRECTORY */
public final class Start {
    public static void main(String[] arguments) {
        try (Kvdb db = Kvdb.open(Path.of(arguments.length > 0 ? arguments[0] : "db"))) {
            Kvs users = db.kvsOrCreate("users");
            Kvs names = db.kvsOrCreate("names");

            // All or nothing, across KVSs, and durable when the call returns.
            db.write(new Batch().put(users, bytes("42"), bytes("Ada")).put(names, bytes("Ada"), bytes("42")), true);
            System.out.println("42 is " + text(users.get(bytes("42"))));

            try (Transaction txn = db.begin()) {
                byte[] name = txn.getForUpdate(users, bytes("42"));
                txn.put(users, bytes("43"), name);
                txn.commit();
            }
            try (RowIterator rows = users.iterate(new Range().from(bytes("40")).to(bytes("50")))) {
                while (rows.hasNext()) {
                    Row row = rows.next();
                    System.out.println(text(row.key()) + " = " + text(row.value()));
                }
            }
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
